//! Text forms of ranges, bounds and identities.
//!
//! Ranges are written as in Rust, with an exclusive end: `1..11`. `1..=10` is accepted too. The exclusive end
//! can be 2^64, so this form exists for every range, including empty ones and those up to `u64::MAX`.

use std::fmt;
use std::ops;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::id::Id;
use crate::range::{IdRange, Ranges};
use crate::store::{Bounds, Cursor, Identity};

/// Parses a start, an end, and whether the end is inclusive.
fn ends(text: &str) -> Option<(u64, u128, bool)> {
    let (start, end) = text.split_once("..")?;
    let (end, inclusive) = end.strip_prefix('=').map_or((end, false), |end| (end, true));
    Some((number(start)?, number(end)?, inclusive))
}

/// Accepts only digits: `FromStr` of the integers accepts a sign too.
fn number<N: FromStr>(digits: &str) -> Option<N> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns the ids from `start` up to `end`, exclusive.
fn range<T: Id>(start: u64, end: u128, shown: &dyn fmt::Display) -> Result<IdRange<T>> {
    let len = end
        .checked_sub(start.into())
        .ok_or_else(|| Error::invalid(format!("the range {shown} ends before it starts")))?;
    let fits = u64::try_from(len).ok().and_then(|len| IdRange::new(start, len));
    fits.ok_or_else(|| {
        let (floor, ceiling) = (T::MIN, T::MAX);
        Error::invalid(format!(
            "the range {shown} must be within {floor}..={ceiling}, and have fewer than 2^64 ids"
        ))
    })
}

/// Written as in Rust: `1..11` for the ids 1 to 10.
impl<T> fmt::Display for IdRange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start(), self.end())
    }
}

/// Parses `1..11` and `1..=10`. The ids must fit `T`.
impl<T: Id> FromStr for IdRange<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (start, end, inclusive) = ends(text)
            .ok_or_else(|| Error::invalid(format!("{text:?} is not a range, such as 1..11 or 1..=10")))?;
        range(start, end.saturating_add(inclusive.into()), &text)
    }
}

/// The ids must fit `T`. A range that ends before it starts is an error.
impl<T: Id> TryFrom<ops::Range<u64>> for IdRange<T> {
    type Error = Error;

    fn try_from(ids: ops::Range<u64>) -> Result<Self> {
        range(ids.start, ids.end.into(), &format_args!("{ids:?}"))
    }
}

/// The ids must fit `T`. `5..=4` is empty, as in Rust; `5..=3` is an error.
impl<T: Id> TryFrom<ops::RangeInclusive<u64>> for IdRange<T> {
    type Error = Error;

    fn try_from(ids: ops::RangeInclusive<u64>) -> Result<Self> {
        range(*ids.start(), u128::from(*ids.end()) + 1, &format_args!("{ids:?}"))
    }
}

/// The ranges, separated by commas: `1..11, 21..31`.
impl<T> fmt::Display for Ranges<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges().iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

/// The ranges must be in ascending order, must not overlap, and must not be empty.
impl<T> TryFrom<Vec<IdRange<T>>> for Ranges<T> {
    type Error = Error;

    fn try_from(ranges: Vec<IdRange<T>>) -> Result<Self> {
        if let Some(empty) = ranges.iter().find(|range| range.is_empty()) {
            return Err(Error::invalid(format!("the range {empty} is empty")));
        }
        let pairs = || ranges.iter().zip(ranges.iter().skip(1));
        if let Some((one, next)) = pairs().find(|(one, next)| one.end() > u128::from(next.start())) {
            return Err(Error::invalid(format!("the range {next} starts before {one} ends")));
        }
        let mut all = Self::none();
        for range in ranges {
            all.push(range);
        }
        Ok(all)
    }
}

/// Written as in Rust: `1..=100`.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.start(), self.max())
    }
}

/// Parses `1..=100` and `1..101`.
impl FromStr for Bounds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid(format!("{text:?} is not a pair of bounds, such as 1..=100"));
        let (start, end, inclusive) = ends(text).ok_or_else(wrong)?;
        let max = end.checked_sub((!inclusive).into()).and_then(|max| u64::try_from(max).ok());
        Self::new(start, max.ok_or_else(wrong)?)
    }
}

impl TryFrom<ops::RangeInclusive<u64>> for Bounds {
    type Error = Error;

    fn try_from(ids: ops::RangeInclusive<u64>) -> Result<Self> {
        Self::new(*ids.start(), *ids.end())
    }
}

impl From<Bounds> for ops::RangeInclusive<u64> {
    fn from(bounds: Bounds) -> Self {
        bounds.start()..=bounds.max()
    }
}

/// The incarnation in 16 hexadecimal digits, a dot, and the epoch: `00c0ffee00c0ffee.3`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.incarnation, self.epoch)
    }
}

impl FromStr for Identity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('.').filter(|(incarnation, _)| {
            incarnation.len() == 16 && incarnation.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        let read = parts.and_then(|(incarnation, epoch)| {
            Some(Self { incarnation: u64::from_str_radix(incarnation, 16).ok()?, epoch: number(epoch)? })
        });
        read.ok_or_else(|| {
            Error::invalid(format!("{text:?} is not a sequence identity, such as 00c0ffee00c0ffee.3"))
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Never fails: only the store can validate its cursors.
impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(Self::new(text))
    }
}

impl From<String> for Cursor {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl AsRef<str> for Cursor {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    fn near_edges() -> impl Strategy<Value = u64> {
        prop_oneof![0..200_u64, any::<u64>(), u64::MAX - 200..=u64::MAX]
    }

    proptest! {
        #[test]
        fn ranges_read_back(start in near_edges(), len in near_edges()) {
            let Some(range) = IdRange::<u64>::new(start, len) else { return Ok(()) };
            prop_assert_eq!(range.to_string().parse::<IdRange>().unwrap(), range);
            if let Some(last) = range.last() {
                prop_assert_eq!(format!("{start}..={last}").parse::<IdRange>().unwrap(), range);
                prop_assert_eq!(IdRange::try_from(start..=last).unwrap(), range);
            }
        }

        #[test]
        fn bounds_and_identities_read_back(a in near_edges(), b in near_edges()) {
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            prop_assert_eq!(bounds.to_string().parse::<Bounds>().unwrap(), bounds);
            prop_assert_eq!(Bounds::try_from(std::ops::RangeInclusive::from(bounds)).unwrap(), bounds);
            let identity = Identity { incarnation: a, epoch: b };
            prop_assert_eq!(identity.to_string().parse::<Identity>().unwrap(), identity);
        }
    }

    fn fault<T: FromStr<Err = Error> + fmt::Debug>(text: &str) -> String {
        let error = text.parse::<T>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    }

    #[test]
    fn malformed_ranges_are_rejected_with_the_reason() {
        for wrong in [
            "",
            "..",
            "1..",
            "..5",
            "1..+5",
            "-1..5",
            "1-5",
            "1...5",
            "1.. 5",
            "1..=",
            "99999999999999999999..1",
        ] {
            assert!(fault::<IdRange>(wrong).contains("such as 1..11"), "{wrong:?}");
            assert!(fault::<Bounds>(wrong).contains("such as 1..=100"), "{wrong:?}");
        }
        assert!(fault::<IdRange>("5..3").contains("ends before it starts"));
        let too_large = fault::<IdRange<i32>>("1..=2147483648");
        assert!(too_large.contains("must be within 0..=2147483647"), "{too_large}");
        assert!(fault::<IdRange<std::num::NonZeroU64>>("0..2").contains("must be within 1..="));
        assert!(fault::<IdRange>("0..=18446744073709551615").contains("fewer than 2^64 ids"));
        assert!(fault::<IdRange>("1..=340282366920938463463374607431768211455").contains("must be within"));
        assert!(fault::<Bounds>("5..=3").contains("larger than max"));
        assert!(fault::<Bounds>("0..0").contains("not a pair"));
        for wrong in ["", "1.2", "00c0ffee00c0ffee", "00c0ffee00c0ffee.", "+0c0ffee00c0ffee.1"] {
            assert!(fault::<Identity>(wrong).contains("not a sequence identity"), "{wrong:?}");
        }
    }

    #[test]
    // The test needs a reversed range.
    #[allow(clippy::reversed_empty_ranges)]
    fn ranges_are_checked_as_they_are_put_in_a_row() {
        assert!(IdRange::<u64>::try_from(5..3).is_err());
        assert_eq!(IdRange::<u64>::try_from(3..3).unwrap().len(), 0);
        let range = |text: &str| text.parse::<IdRange>().unwrap();
        let ranges = Ranges::try_from(vec![range("1..3"), range("3..5"), range("9..10")]).unwrap();
        assert_eq!(ranges.to_string(), "1..5, 9..10");
        assert_eq!(ranges.ranges(), [range("1..5"), range("9..10")]);
        assert!(Ranges::try_from(vec![range("1..3"), range("2..5")]).is_err());
        assert!(Ranges::try_from(vec![range("5..6"), range("1..2")]).is_err());
        assert!(Ranges::try_from(vec![range("5..5")]).is_err());
    }
}
