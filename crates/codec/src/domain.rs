//! The numbers that a codec accepts.

use std::fmt;

use super::fault::invalid;
use idmill::{Error, Result};

/// The numbers `0..=max` that a codec accepts and produces, given as a number of bits or as an exclusive
/// bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    max: u64,
}

impl Domain {
    /// Every `u64`.
    pub const ALL: Self = Self { max: u64::MAX };

    /// Returns the numbers with up to `bits` bits, 1 to 64: 31 for an `i32`, 53 for the exact integers of
    /// JavaScript, 63 for an `i64`.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for any other number of bits.
    pub fn bits(bits: u32) -> Result<Self> {
        if !(1..=64).contains(&bits) {
            return Err(invalid(format!("{bits} bits: choose 1 to 64")));
        }
        Ok(Self { max: u64::MAX >> (64 - bits) })
    }

    /// Returns the numbers below `bound`, which is at least 1.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for 0, because no number is below it.
    pub fn below(bound: u64) -> Result<Self> {
        let max = bound.checked_sub(1);
        max.map(|max| Self { max })
            .ok_or_else(|| invalid("the bound is 0, so no number is below it; use at least 1"))
    }

    /// Returns the largest number.
    pub fn max(self) -> u64 {
        self.max
    }

    /// Returns the number of bits of the largest number; 0 if the domain is only 0.
    pub fn width(self) -> u32 {
        64 - self.max.leading_zeros()
    }

    /// Returns whether `number` is in the domain.
    pub fn contains(self, number: u64) -> bool {
        number <= self.max
    }

    /// Returns `number` if it is in the domain.
    pub(super) fn admit(self, number: u64, codec: &str) -> Result<u64> {
        if self.contains(number) {
            return Ok(number);
        }
        let message = format!(
            "{number} is too large for `{codec}`, which accepts 0 to {}; widen the codec, or lower the \
             sequence's `max`",
            self.max
        );
        Err(Error::invalid(message))
    }
}

/// Uses the spelling of formats: `bits=31`, `below=1000`.
impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max.checked_add(1) {
            Some(bound) if !bound.is_power_of_two() || bound == 1 => write!(f, "below={bound}"),
            _ => write!(f, "bits={}", self.width()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_below_agree_and_include_both_bounds() {
        assert_eq!(Domain::bits(31).unwrap(), Domain::below(1 << 31).unwrap());
        assert_eq!(Domain::bits(64).unwrap(), Domain::ALL);
        assert!(Domain::ALL.contains(u64::MAX));
        let six = Domain::below(6).unwrap();
        assert!(six.contains(5) && !six.contains(6) && six.width() == 3);
        for bits in [0, 65] {
            let error = Domain::bits(bits).unwrap_err().to_string();
            assert_eq!(error, format!("configure: {bits} bits: choose 1 to 64"));
        }
        let none = Domain::below(0).unwrap_err().to_string();
        assert_eq!(none, "configure: the bound is 0, so no number is below it; use at least 1");
        let says = six.admit(6, "permute").unwrap_err().to_string();
        assert_eq!(
            says,
            "6 is too large for `permute`, which accepts 0 to 5; widen the codec, or lower the sequence's `max`"
        );
    }

    #[test]
    fn domain_is_printed_in_format_syntax() {
        let written = [
            (Domain::bits(1), "bits=1"),
            (Domain::bits(64), "bits=64"),
            (Domain::below(1), "below=1"),
            (Domain::below(1000), "below=1000"),
            (Domain::below(1024), "bits=10"),
            (Domain::below(u64::MAX), "below=18446744073709551615"),
        ];
        for (domain, text) in written {
            assert_eq!(domain.unwrap().to_string(), text);
        }
    }
}
