//! Computes the size of the ranges of datacenter windows.

use std::borrow::Cow;
use std::time::Duration;

use idmill::{Error, Result};

/// The expected use of a sequence, from which [`plan`](Self::plan) computes the size of the windows' ranges.
///
/// A window preloads its next range when the current one is down to the threshold. If the datacenter is
/// isolated at that moment, only the threshold is left. The threshold must cover the isolation, and is only a
/// part of a range.
///
/// ```
/// use idmill_shared_cache::Sizing;
/// use std::time::Duration;
///
/// // 32-bit ids, at most 100 a second in each of three datacenters, each of which may be cut off for a day.
/// let day = Duration::from_secs(24 * 3600);
/// let size = Sizing::new(100.0, day).datacenters(3).ids(u64::from(i32::MAX as u32)).plan().unwrap();
/// assert_eq!(size.range, 17_280_000);
/// assert_eq!(size.threshold_ids, 8_640_000);
/// assert!(size.outlasts(100.0) >= day);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizing {
    rate: f64,
    isolation: Duration,
    datacenters: u32,
    ids: u64,
    threshold: u8,
}

/// The size of a window's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSize {
    /// The number of ids that a window takes from the global counter at a time.
    pub range: u64,
    /// The next range is preloaded when this percentage of a range is left.
    pub threshold: u8,
    /// The threshold in ids: the minimum in a window while the other datacenters are reachable.
    pub threshold_ids: u64,
    /// The maximum that all windows together may hold: ids that are set aside and not handed out. If a window
    /// is empty, a reserve of more than a range claims its full count for itself. The window then holds those
    /// ids in addition until the reserve has drawn them, and keeps them if the process crashes before.
    pub held: u64,
}

impl Sizing {
    /// Creates a sizing for a maximum rate in ids per second in one datacenter, which may be isolated from
    /// the others for this long. Defaults: two datacenters, the positive 63-bit integers and a threshold of
    /// 50 %.
    pub fn new(rate: f64, isolation: Duration) -> Self {
        Self { rate, isolation, datacenters: 2, ids: i64::MAX.unsigned_abs(), threshold: 50 }
    }

    /// Sets the number of datacenters with windows.
    #[must_use]
    pub fn datacenters(mut self, datacenters: u32) -> Self {
        self.datacenters = datacenters;
        self
    }

    /// Sets the number of ids of the sequence: for the positive 32-bit integers, `i32::MAX`.
    #[must_use]
    pub fn ids(mut self, ids: u64) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the percentage (1 to 100): the next range is preloaded when this much of a range is left.
    #[must_use]
    pub fn threshold(mut self, percent: u8) -> Self {
        self.threshold = percent;
        self
    }

    /// Returns the smallest sufficient range.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for invalid values, or if the sequence has too few
    /// ids for the windows of all datacenters.
    pub fn plan(&self) -> Result<RangeSize> {
        let needed = self.needed()?;
        let range = u64::try_from((u128::from(needed) * 100).div_ceil(u128::from(self.threshold)));
        let range =
            range.map_err(|_| refuse("the range is too large: reduce the rate or the isolation time"))?;
        self.check(range)
    }

    /// Checks that this range outlasts the isolation and fits the sequence.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), with advice, if the threshold is used up before the
    /// isolation ends, or if the sequence has too few ids for the windows of all datacenters.
    pub fn check(&self, range: u64) -> Result<RangeSize> {
        let needed = self.needed()?;
        let left = u128::from(range) * u128::from(self.threshold) / 100;
        if left < u128::from(needed) {
            return Err(refuse(format!(
                "{left} ids ({}% of {range}) are too few: {} ids/s for {:?} need {needed}; use a larger \
                 range or threshold",
                self.threshold, self.rate, self.isolation
            )));
        }
        let held = (u128::from(range) + left) * u128::from(self.datacenters);
        let (threshold_ids, held) = match (u64::try_from(left), u64::try_from(held)) {
            (Ok(left), Ok(held)) if held <= self.ids => (left, held),
            _ => {
                return Err(refuse(format!(
                    "the windows of {} datacenters may hold {held} ids, but only {} exist; use a smaller \
                     range, or wider ids",
                    self.datacenters, self.ids
                )));
            }
        };
        Ok(RangeSize { range, threshold: self.threshold, threshold_ids, held })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded before
    fn needed(&self) -> Result<u64> {
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return Err(refuse(format!(
                "the rate of {} ids/s is invalid; it must be a finite number above 0",
                self.rate
            )));
        }
        if self.datacenters == 0 || !(1..=100).contains(&self.threshold) {
            return Err(refuse("use at least one datacenter and a threshold of 1 to 100%"));
        }
        let needed = (self.rate * self.isolation.as_secs_f64()).ceil().max(1.0);
        if needed >= 2_f64.powi(63) {
            return Err(refuse("more than 2^63 ids are needed: reduce the rate or the isolation time"));
        }
        Ok(needed as u64)
    }
}

impl RangeSize {
    /// Returns how long a window lasts at this rate, in ids per second, if it is isolated at the worst
    /// moment.
    pub fn outlasts(&self, rate: f64) -> Duration {
        Duration::try_from_secs_f64(self.threshold_ids as f64 / rate).unwrap_or(Duration::MAX)
    }
}

fn refuse(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(message).during(idmill::Operation::Configure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn refused(outcome: Result<RangeSize>, remedy: &str) {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains(remedy), "{error}");
    }

    #[test]
    fn sizes_that_cannot_hold_are_refused() {
        let small = Sizing::new(100.0, DAY).ids(i32::MAX.unsigned_abs().into());
        refused(small.check(8_640_000), "a larger range");
        assert!(small.check(17_280_000).is_ok());
        refused(small.threshold(10).check(17_280_000), "range or threshold");
        refused(small.datacenters(100).plan(), "wider ids");
        refused(Sizing::new(10_000.0, DAY).ids(i32::MAX.unsigned_abs().into()).plan(), "wider ids");
        refused(Sizing::new(1e18, DAY).plan(), "reduce the rate");
        refused(Sizing::new(1e13, DAY).threshold(1).plan(), "reduce the rate");
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            refused(Sizing::new(rate, DAY).plan(), "ids/s is invalid");
        }
        refused(Sizing::new(1.0, DAY).datacenters(0).plan(), "at least one");
        refused(Sizing::new(1.0, DAY).threshold(0).plan(), "1 to 100%");
        refused(Sizing::new(1.0, DAY).threshold(101).plan(), "1 to 100%");
        assert_eq!(Sizing::new(0.001, Duration::ZERO).plan().unwrap().range, 2);
    }

    proptest! {
        #[test]
        fn planned_size_is_the_smallest_sufficient(
            rate in 0.01..1e6_f64, hours in 0..1000_u64, percent in 1..=100_u8, datacenters in 1..20_u32,
        ) {
            let sizing = Sizing::new(rate, Duration::from_secs(hours * 3600)).threshold(percent).datacenters(datacenters);
            let size = sizing.plan().unwrap();
            prop_assert!(size.threshold_ids as f64 >= rate * (hours * 3600) as f64);
            prop_assert_eq!(sizing.check(size.range).unwrap(), size);
            prop_assert!(size.range == 1 || sizing.check(size.range - 1).is_err());
        }
    }
}
