//! Formats: chains of codecs.

mod grammar;
mod parse;

use std::fmt;

use super::base::{Base, Digits, Layout, WIDEST};
use super::domain::Domain;
use super::fault::{self, invalid};
use super::permutation::Permutation;
use super::reversal::BitReversal;
use idmill::{Error, Result};

/// The maximum length of a prefix or suffix, in bytes.
const LONGEST: usize = 64;

/// A codec from numbers to numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mapping {
    /// `permute`.
    Permutation(Permutation),
    /// `reverse`.
    Reversal(BitReversal),
}

impl From<Permutation> for Mapping {
    fn from(permutation: Permutation) -> Self {
        Self::Permutation(permutation)
    }
}

impl From<BitReversal> for Mapping {
    fn from(reversal: BitReversal) -> Self {
        Self::Reversal(reversal)
    }
}

impl Mapping {
    /// Returns the numbers that the codec accepts and produces.
    pub fn domain(&self) -> Domain {
        match self {
            Self::Permutation(permutation) => permutation.domain(),
            Self::Reversal(reversal) => reversal.domain(),
        }
    }

    fn map(&self, number: u64, back: bool) -> Result<u64> {
        match self {
            Self::Permutation(permutation) if back => permutation.decode(number),
            Self::Permutation(permutation) => permutation.encode(number),
            // The reversal is its own inverse.
            Self::Reversal(reversal) => reversal.encode(number),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Permutation(_) => "permute",
            Self::Reversal(_) => "reverse",
        }
    }
}

/// The written form of ids: a chain of reversible codecs.
///
/// # As a text
///
/// Codecs are separated by `|` and applied from left to right: first the codecs from numbers to numbers,
/// then the base and its layout, then prefix and suffix.
///
/// | codec | does |
/// | --- | --- |
/// | `permute(key=KEY,bits=N)` | [`Permutation::v1`] of the numbers of N bits |
/// | `permute(key=KEY,below=N)` | the same, of the numbers below N |
/// | `reverse(bits=N)` | [`BitReversal`] at N bits |
/// | `decimal`, `base62`, `crockford`, `crockford(check)` | a [`Base`]; default `decimal` |
/// | `pad(N)` | leading zeros to at least N symbols (N at most 32), including a check symbol |
/// | `group(N)` | for `crockford`: a hyphen between every N symbols, counted from the end |
/// | `prefix(TEXT)`, `suffix(TEXT)` | a text of at most 64 bytes before or after the number |
///
/// `KEY` is `env:NAME` or `file:PATH`, which [`load`](Self::load) reads, or the key itself, in the form of
/// [`Key::parse`](super::Key::parse). A key in the format is visible to every reader of the format. Put a
/// value in double quotes if it contains one of `|(),"=` or has blanks at its ends. Inside the quotes, write
/// `\"` for a quote and `\\` for a backslash.
///
/// # Reading
///
/// Reading is strict: [`decode`](Self::decode) accepts exactly the text that [`encode`](Self::encode) writes
/// for an id. With `crockford`, it ignores case (also in prefix and suffix) and hyphens around digits, and
/// reads `O`, `I` and `L` as digits.
///
/// # Printing
///
/// `Display` prints a text that parses to the same format, **including a key that was written into it**.
/// `Debug` does not show keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Format {
    mappings: Vec<Mapping>,
    layout: Layout,
    prefix: Box<str>,
    suffix: Box<str>,
}

impl Format {
    /// Creates a format that writes numbers in a base.
    pub fn new(base: Base) -> Self {
        Self { layout: Layout { base, ..Layout::default() }, ..Self::default() }
    }

    /// Adds a codec from numbers to numbers after the existing ones.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the preceding codecs produce larger numbers
    /// than `mapping` accepts.
    pub fn then(mut self, mapping: impl Into<Mapping>) -> Result<Self> {
        let mapping = mapping.into();
        let makes = self.mappings.last().map(Mapping::domain);
        if let Some(makes) = makes.filter(|makes| !mapping.domain().contains(makes.max())) {
            let (name, takes) = (mapping.name(), mapping.domain().max());
            let message = format!(
                "`{name}` accepts 0 to {takes}, but the codec before it returns up to {}; widen `{name}`",
                makes.max()
            );
            return Err(invalid(message));
        }
        self.mappings.push(mapping);
        Ok(self)
    }

    /// Pads with leading zeros to at least this many symbols, 1 to 32, including a check symbol.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for any other number of symbols.
    pub fn pad(mut self, symbols: u8) -> Result<Self> {
        self.layout.pad = count(symbols)?;
        Ok(self)
    }

    /// Writes a hyphen between groups of this many symbols, 1 to 32, counted from the end.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for any other number of symbols, and for a base
    /// that does not ignore hyphens.
    pub fn group(mut self, symbols: u8) -> Result<Self> {
        if !self.layout.base.ignores_case() {
            let message = format!(
                "`{}` does not allow hyphens; use `crockford`, which ignores them",
                self.layout.base.name()
            );
            return Err(invalid(message));
        }
        self.layout.group = count(symbols)?;
        Ok(self)
    }

    /// Sets a text before the number: 1 to 64 bytes without control characters.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for any other text.
    pub fn prefix(mut self, text: &str) -> Result<Self> {
        self.prefix = affix(text)?;
        Ok(self)
    }

    /// Sets a text after the number: 1 to 64 bytes without control characters.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for any other text.
    pub fn suffix(mut self, text: &str) -> Result<Self> {
        self.suffix = affix(text)?;
        Ok(self)
    }

    /// Returns the ids that the format accepts.
    pub fn domain(&self) -> Domain {
        self.mappings.first().map_or(Domain::ALL, Mapping::domain)
    }

    /// Returns the text of an id, which can be written to any [`fmt::Write`] without allocating.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fmt::Write;
    ///
    /// let format: idmill_codec::Format = "base62|prefix(u_)".parse()?;
    /// let mut line = String::new();
    /// write!(line, "{}", format.text(1_000_000)?)?;
    /// assert_eq!(line, "u_4C92");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an id outside the [`domain`](Self::domain).
    pub fn text(&self, id: u64) -> Result<Text<'_>> {
        let number = self.mappings.iter().try_fold(id, |number, mapping| mapping.map(number, false))?;
        Ok(Text { format: self, digits: self.layout.write(number) })
    }

    /// Returns the text of an id.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an id outside the [`domain`](Self::domain).
    pub fn encode(&self, id: u64) -> Result<String> {
        Ok(self.text(id)?.to_string())
    }

    /// Appends the text of an id to `buffer`, which can be reused.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an id outside the [`domain`](Self::domain); the
    /// buffer is then unchanged.
    pub fn encode_into(&self, id: u64, buffer: &mut String) -> Result<()> {
        buffer.extend(self.text(id)?.parts());
        Ok(())
    }

    /// Returns the id of a text.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), with the position of a wrong character, for a text
    /// that this format does not accept.
    pub fn decode(&self, text: &str) -> Result<u64> {
        let (from, to) = self.without_affixes(text)?;
        let number = self.layout.read(text, from, to)?;
        self.mappings.iter().rev().try_fold(number, |number, mapping| {
            mapping.map(number, true).map_err(|_| {
                let (name, max) = (mapping.name(), mapping.domain().max());
                let what = format!("{number} is not a result of `{name}`, which returns 0 to {max}");
                fault::whole(text, format_args!("{what}; check that the text has this format"))
            })
        })
    }

    /// Returns the byte range of the digits.
    fn without_affixes(&self, text: &str) -> Result<(usize, usize)> {
        let from = self.prefix.len();
        let Some(rest) = text.get(from..).filter(|_| self.same(&text[..from], &self.prefix)) else {
            let message = format!("it should begin with `{}`", self.prefix);
            return Err(fault::at(text, self.agree(text), message));
        };
        let Some(digits) = rest.len().checked_sub(self.suffix.len()) else {
            return Err(self.wrong_end(text));
        };
        match rest.get(digits..) {
            Some(end) if self.same(end, &self.suffix) => Ok((from, from + digits)),
            _ => Err(self.wrong_end(text)),
        }
    }

    fn wrong_end(&self, text: &str) -> Error {
        fault::at(text, text.len(), format_args!("it should end with `{}`", self.suffix))
    }

    fn same(&self, text: &str, affix: &str) -> bool {
        if self.layout.base.ignores_case() { text.eq_ignore_ascii_case(affix) } else { text == affix }
    }

    /// Returns the length of the common beginning of the text and the expected prefix.
    fn agree(&self, text: &str) -> usize {
        let mut both = text.char_indices().zip(self.prefix.chars());
        let differs = both.find(|((_, c), expected)| {
            if self.layout.base.ignores_case() { !c.eq_ignore_ascii_case(expected) } else { c != expected }
        });
        differs.map_or(text.len(), |((at, _), _)| at)
    }
}

/// An id in the form of a [`Format`].
#[derive(Clone, Copy)]
pub struct Text<'a> {
    format: &'a Format,
    digits: Digits,
}

impl Text<'_> {
    fn parts(&self) -> [&str; 3] {
        [&self.format.prefix, self.digits.as_str(), &self.format.suffix]
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({self})")
    }
}

fn count(symbols: u8) -> Result<u8> {
    if !(1..=WIDEST).contains(&symbols) {
        return Err(invalid(format!("{symbols} symbols: choose 1 to {WIDEST}")));
    }
    Ok(symbols)
}

fn affix(text: &str) -> Result<Box<str>> {
    let what = if text.is_empty() {
        "a prefix or suffix cannot be empty; omit it"
    } else if text.len() > LONGEST {
        "a prefix or suffix may have at most 64 bytes; shorten it"
    } else if text.contains(char::is_control) {
        "a prefix or suffix cannot contain control characters, such as a line break"
    } else {
        return Ok(text.into());
    };
    Err(invalid(format!("`{}`: {what}", fault::shown(text))))
}
