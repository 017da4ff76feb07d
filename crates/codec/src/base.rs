//! Numbers written in digits.
//!
//! No single crate meets all requirements: one parser for three alphabets, exactly one text per number,
//! error positions, padding, and a check symbol. `base62` has no padding and does not reject leading
//! zeros. `crockford` has no check symbol, does not accept hyphens, and uses unsafe code.

use std::cmp::Ordering;

use super::fault;
use idmill::Result;

/// The maximum number of digits of a padded number.
pub(super) const WIDEST: u8 = 32;
/// Space for `WIDEST` digits with a hyphen between any two.
const BUFFER: usize = 2 * WIDEST as usize;

const DECIMAL: &[u8] = b"0123456789";
const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Crockford's digits, and the five additional check symbols.
const CROCKFORD: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U";
/// The number of check symbols, a prime.
const CHECKS: u64 = 37;

/// The base of a written number.
///
/// | base | digits | `u64::MAX` takes | reading |
/// | --- | --- | --- | --- |
/// | `Decimal` | `0`–`9` | 20 | as written |
/// | `Base62` | `0`–`9`, `A`–`Z`, `a`–`z` | 11 | as written; case matters |
/// | `Crockford` | `0`–`9`, `A`–`Z` without `I`, `L`, `O`, `U` | 13 | see below |
///
/// If all texts have the same length, the texts of all three bases sort like their numbers (in byte order;
/// `Base62` only if case matters). Crockford's base 32 is case-insensitive, with `O` read as 0, `I` and `L`
/// read as 1, and hyphens ignored. For its description, see <https://www.crockford.com/base32.html>.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Base {
    /// Decimal digits.
    #[default]
    Decimal,
    /// Digits and letters of both cases: the shortest base.
    Base62,
    /// Crockford's base 32, for ids that people read and type.
    Crockford {
        /// Whether a check symbol follows the digits: the number modulo 37, written in the digits and
        /// `*~$=U`. The symbol detects any single wrong symbol, and any swap of two neighbours.
        check: bool,
    },
}

/// The layout of the digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) base: Base,
    /// The minimum number of symbols, including the check symbol; 0 for no padding.
    pub(super) pad: u8,
    /// The number of symbols between hyphens, counted from the end; 0 for none.
    pub(super) group: u8,
}

/// The digits of a number, at the end of their buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits {
    buffer: [u8; BUFFER],
    start: usize,
    symbols: u8,
    group: u8,
}

impl Digits {
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.buffer[self.start..]).expect("every alphabet is ASCII")
    }

    fn push(&mut self, symbol: u8) {
        // Without groups, the group is 0, of which only 0 is a multiple.
        if self.symbols > 0 && self.symbols.is_multiple_of(self.group) {
            self.start -= 1;
            self.buffer[self.start] = b'-';
        }
        self.start -= 1;
        self.buffer[self.start] = symbol;
        self.symbols += 1;
    }
}

impl Layout {
    /// Writes a number from its last digit to its first.
    pub(super) fn write(self, number: u64) -> Digits {
        let mut digits = Digits { buffer: [0; BUFFER], start: BUFFER, symbols: 0, group: self.group };
        if self.base.checks() {
            digits.push(CROCKFORD[index(number % CHECKS)]);
        }
        let alphabet = self.base.alphabet();
        let radix = alphabet.len() as u64;
        let mut rest = number;
        loop {
            digits.push(alphabet[index(rest % radix)]);
            rest /= radix;
            if rest == 0 {
                break;
            }
        }
        while digits.symbols < self.pad {
            digits.push(alphabet[0]);
        }
        digits
    }

    /// Parses the number in `text[from..to]`.
    pub(super) fn read(self, text: &str, from: usize, to: usize) -> Result<u64> {
        let symbols = || symbols(text, from, to, self.base.ignores_case());
        let all = symbols().count();
        let digits = if self.base.checks() { all.saturating_sub(1) } else { all };
        if digits == 0 {
            return Err(fault::at(text, from, format_args!("no digits of `{}`", self.base.name())));
        }
        let mut number = 0;
        for (at, symbol) in symbols().take(digits) {
            number = self.base.add(number, symbol).map_err(|what| fault::at(text, at, what))?;
        }
        self.check_length(text, number, all)?;
        match symbols().nth(digits) {
            Some((at, symbol)) => check(number, symbol).map_err(|what| fault::at(text, at, what))?,
            None => debug_assert!(!self.base.checks()),
        }
        Ok(number)
    }

    /// Checks that the text has neither extra zeros nor missing digits, so that each number has exactly one
    /// text.
    fn check_length(self, text: &str, number: u64, symbols: usize) -> Result<()> {
        let expected = usize::from(self.write(number).symbols);
        let what = match symbols.cmp(&expected) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => "some are missing",
            Ordering::Greater => "remove leading zeros",
        };
        let message = format!("{symbols} symbols, expected {expected}: {what}");
        Err(fault::whole(text, message))
    }
}

impl Base {
    /// Returns the name in a format.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Decimal => "decimal",
            Self::Base62 => "base62",
            Self::Crockford { .. } => "crockford",
        }
    }

    /// Returns whether case is ignored; hyphens are then ignored too.
    pub(super) fn ignores_case(self) -> bool {
        matches!(self, Self::Crockford { .. })
    }

    fn checks(self) -> bool {
        matches!(self, Self::Crockford { check: true })
    }

    fn alphabet(self) -> &'static [u8] {
        match self {
            Self::Decimal => DECIMAL,
            Self::Base62 => BASE62,
            Self::Crockford { .. } => &CROCKFORD[..32],
        }
    }

    /// Appends a digit to `number`.
    fn add(self, number: u64, symbol: char) -> Result<u64, String> {
        let digit = self.digit(symbol).ok_or_else(|| self.no_digit(symbol))?;
        let longer =
            number.checked_mul(self.alphabet().len() as u64).and_then(|number| number.checked_add(digit));
        longer.ok_or_else(|| "the number is larger than 2^64 - 1, the largest id".to_owned())
    }

    fn digit(self, symbol: char) -> Option<u64> {
        let symbol = if self.ignores_case() { uniform(symbol) } else { symbol };
        position(self.alphabet(), symbol)
    }

    fn no_digit(self, symbol: char) -> String {
        let remedy = match (self, uniform(symbol)) {
            (Self::Crockford { check: false }, '*' | '~' | '$' | '=') => {
                "it is a check symbol, and this format has none"
            }
            (Self::Crockford { .. }, 'U') => "it may be a misread V",
            (Self::Crockford { .. }, _) => "use 0 to 9 and A to Z without I, L, O and U",
            (Self::Base62, _) => "use 0 to 9, A to Z and a to z",
            (Self::Decimal, _) => "use 0 to 9",
        };
        format!("`{}` is not a digit of `{}`: {remedy}", symbol.escape_debug(), self.name())
    }
}

/// Returns the symbols of a range with their positions, without ignored hyphens.
fn symbols(text: &str, from: usize, to: usize, hyphens: bool) -> impl Iterator<Item = (usize, char)> {
    let all = text[from..to].char_indices().map(move |(at, symbol)| (from + at, symbol));
    all.filter(move |(_, symbol)| !hyphens || *symbol != '-')
}

/// Maps easily confused symbols to the same symbol.
fn uniform(symbol: char) -> char {
    match symbol.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        symbol => symbol,
    }
}

fn check(number: u64, symbol: char) -> Result<(), String> {
    match position(CROCKFORD, uniform(symbol)) {
        Some(value) if value == number % CHECKS => Ok(()),
        Some(_) => {
            Err("the check symbol does not match: the id was mistyped; compare it with the original"
                .to_owned())
        }
        None => Err(format!(
            "`{}` is not a check symbol; use a digit of `crockford`, or * ~ $ = U",
            symbol.escape_debug()
        )),
    }
}

fn position(alphabet: &[u8], symbol: char) -> Option<u64> {
    let found = alphabet.iter().position(|known| char::from(*known) == symbol)?;
    Some(found as u64)
}

/// Converts a digit to its position in an alphabet. An alphabet has fewer than 256 symbols.
#[allow(clippy::cast_possible_truncation)]
fn index(digit: u64) -> usize {
    digit as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED: Base = Base::Crockford { check: true };
    const PLAIN: Base = Base::Crockford { check: false };

    fn layout(base: Base) -> Layout {
        Layout { base, pad: 0, group: 0 }
    }

    fn read(base: Base, text: &str) -> Result<u64> {
        layout(base).read(text, 0, text.len())
    }

    #[test]
    fn encoded_texts_never_change() {
        for (base, number, text) in [
            (Base::Decimal, 0, "0"),
            (Base::Decimal, u64::MAX, "18446744073709551615"),
            (Base::Base62, 61, "z"),
            (Base::Base62, 62, "10"),
            (Base::Base62, u64::MAX, "LygHa16AHYF"),
            (PLAIN, 31, "Z"),
            (PLAIN, 5111, "4ZQ"),
            (PLAIN, u64::MAX, "FZZZZZZZZZZZZ"),
            (CHECKED, 0, "00"),
            (CHECKED, 32, "10*"),
            (CHECKED, 33, "11~"),
            (CHECKED, 34, "12$"),
            (CHECKED, 35, "13="),
            (CHECKED, 36, "14U"),
            (CHECKED, 37, "150"),
            (CHECKED, u64::MAX, "FZZZZZZZZZZZZB"),
        ] {
            assert_eq!(layout(base).write(number).as_str(), text);
            assert_eq!(read(base, text).unwrap(), number, "{text}");
        }
    }

    #[test]
    fn padding_counts_symbols_but_not_hyphens() {
        for (pad, group, text) in
            [(8, 0, "000004ZQ"), (8, 4, "0000-04ZQ"), (8, 3, "00-000-4ZQ"), (0, 2, "4-ZQ"), (2, 9, "4ZQ")]
        {
            let layout = Layout { base: PLAIN, pad, group };
            assert_eq!(layout.write(5111).as_str(), text);
            assert_eq!(layout.read(text, 0, text.len()).unwrap(), 5111);
        }
        let widest = Layout { base: CHECKED, pad: WIDEST, group: 1 };
        let text = widest.write(u64::MAX);
        assert_eq!(text.as_str().len(), 63);
        assert_eq!(widest.read(text.as_str(), 0, 63).unwrap(), u64::MAX);
    }

    #[test]
    fn commonly_confused_symbols_are_decoded() {
        for text in ["4zq", "4-ZQ", "-4--zQ-"] {
            assert_eq!(read(PLAIN, text).unwrap(), 5111);
        }
        for text in ["1O1", "lo1", "IOI", "1oL"] {
            assert_eq!(read(PLAIN, text).unwrap(), 1025);
        }
        assert_eq!(read(CHECKED, "14u").unwrap(), 36);
        assert_eq!(read(CHECKED, "oO").unwrap(), 0);
    }

    #[test]
    fn invalid_text_is_rejected_with_its_position() {
        let large = "the number is larger than 2^64 - 1, the largest id";
        let plain = "use 0 to 9 and A to Z without I, L, O and U";
        for (base, text, at, says) in [
            (Base::Decimal, "", 1, "no digits of `decimal`"),
            (Base::Decimal, "12a", 3, "`a` is not a digit of `decimal`: use 0 to 9"),
            (Base::Decimal, "+1", 1, "`+` is not a digit of `decimal`: use 0 to 9"),
            (Base::Decimal, "1_000", 2, "`_` is not a digit of `decimal`: use 0 to 9"),
            (Base::Decimal, "٣", 1, "`٣` is not a digit of `decimal`: use 0 to 9"),
            (Base::Decimal, "18446744073709551616", 20, large),
            (Base::Decimal, "99999999999999999999999999", 20, large),
            (Base::Base62, "LygHa16AHYG", 11, large),
            (Base::Base62, "a-b", 2, "`-` is not a digit of `base62`: use 0 to 9, A to Z and a to z"),
            (PLAIN, "---", 1, "no digits of `crockford`"),
            (PLAIN, "4ZU", 3, "`U` is not a digit of `crockford`: it may be a misread V"),
            (PLAIN, "ä4ZQ", 1, &format!("`ä` is not a digit of `crockford`: {plain}")),
            (PLAIN, "G000000000000", 13, large),
            (CHECKED, "0", 1, "no digits of `crockford`"),
            (CHECKED, "14!", 3, "`!` is not a check symbol; use a digit of `crockford`, or * ~ $ = U"),
            (CHECKED, "1*4", 2, &format!("`*` is not a digit of `crockford`: {plain}")),
            (
                CHECKED,
                "14-V",
                4,
                "the check symbol does not match: the id was mistyped; compare it with the original",
            ),
        ] {
            let error = read(base, text).unwrap_err().to_string();
            assert_eq!(error, format!("`{text}`, character {at}: {says}"));
        }
        for symbol in ["*", "~", "$", "="] {
            let error = read(PLAIN, &format!("14{symbol}")).unwrap_err().to_string();
            let says = "is not a digit of `crockford`: it is a check symbol, and this format has none";
            assert_eq!(error, format!("`14{symbol}`, character 3: `{symbol}` {says}"));
        }
    }

    #[test]
    fn text_of_another_length_is_rejected() {
        for (base, pad, text, says) in [
            (Base::Decimal, 0, "007", "3 symbols, expected 1: remove leading zeros"),
            (Base::Base62, 0, "0a", "2 symbols, expected 1: remove leading zeros"),
            (CHECKED, 0, "014U", "4 symbols, expected 3: remove leading zeros"),
            (PLAIN, 8, "4ZQ", "3 symbols, expected 8: some are missing"),
            (PLAIN, 8, "0000004ZQ", "9 symbols, expected 8: remove leading zeros"),
        ] {
            let layout = Layout { base, pad, group: 0 };
            let error = layout.read(text, 0, text.len()).unwrap_err().to_string();
            assert_eq!(error, format!("`{text}`: {says}"));
        }
    }

    #[test]
    fn check_symbol_detects_one_wrong_or_two_swapped_symbols() {
        for number in [1, 5111, 123_456_789_012, u64::MAX / 3] {
            let text = layout(CHECKED).write(number).as_str().to_owned();
            for at in 0..text.len() {
                for wrong in CROCKFORD {
                    let mut mistyped = text.clone().into_bytes();
                    mistyped[at] = *wrong;
                    let mistyped = String::from_utf8(mistyped).unwrap();
                    assert!(mistyped == text || read(CHECKED, &mistyped).is_err(), "{mistyped} for {text}");
                }
                let mut swapped = text.clone().into_bytes();
                swapped.swap(at, (at + 1) % text.len());
                let swapped = String::from_utf8(swapped).unwrap();
                assert!(
                    at + 1 == text.len() || swapped == text || read(CHECKED, &swapped).is_err(),
                    "{swapped}"
                );
            }
        }
    }
}
