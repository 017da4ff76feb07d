//! How large ranges must be, before there is any load to measure: the refill policy's own arithmetic, for
//! people who plan.

use std::time::Duration;

use crate::error::{Error, Operation, Result};
use crate::refill::policy::Policy;
use crate::sequence::segment::MAX_LEN;
use crate::sequence::settings::Adaptive;

/// What one process draws from one sequence, and the outage it must survive.
///
/// ```
/// use idmill::planning::Workload;
/// use std::time::Duration;
///
/// let workload = Workload {
///     rate: 500.0,
///     latency: Duration::from_millis(20),
///     outage_budget: Duration::from_secs(60),
///     max_waste: 100_000,
/// };
/// let sizes = workload.sizes()?;
/// assert_eq!(sizes.watermark, 30_040); // 500 × (60 s + 4 × 20 ms)
/// assert!(sizes.lasts(workload.rate) >= workload.outage_budget);
/// # Ok::<(), idmill::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Ids drawn per second.
    pub rate: f64,
    /// How long the store takes to answer a reserve.
    pub latency: Duration,
    /// How long to keep serving while the store is away.
    pub outage_budget: Duration,
    /// The most ids in memory, 1 to 2^48; wins over the budget.
    pub max_waste: u64,
}

/// The sizes that the refill policy settles at under a steady load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// How many ids a refill reserves.
    pub step: u64,
    /// How many ids remain when the refill starts.
    pub watermark: u64,
}

/// The rate is measured, so it has an error: how much longer than an outage the budget must be to cover it.
const HEADROOM: f64 = 1.02;
/// The longest pause between two tries of a reserve, with jitter: the store's return may be noticed this
/// late. The pause grows from almost nothing, and is never longer than the outage so far.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Workload {
    /// Returns the workload that draws at this rate through an outage of the store. Its budget is the length
    /// of the outage, plus 2 % since rates are measured, plus up to 10 s until the store's return is noticed;
    /// its waste cap is the [least waste](Self::least_waste) that this costs.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid rate.
    pub fn surviving(outage: Duration, rate: f64, latency: Duration) -> Result<Self> {
        let longer = Duration::try_from_secs_f64(outage.as_secs_f64() * HEADROOM).unwrap_or(Duration::MAX);
        let outage_budget = longer.saturating_add(outage.min(LONGEST_PAUSE));
        let workload = Self { rate, latency, outage_budget, max_waste: 1 };
        Ok(Self { max_waste: workload.least_waste()?, ..workload })
    }

    /// Returns the sizes that an adaptive sequence with these settings settles at.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid rate, or a cap that is out of bounds.
    pub fn sizes(&self) -> Result<Sizes> {
        let invalid = |message: String| Err(Error::invalid(message).during(Operation::Configure));
        if !self.rate.is_finite() || self.rate < 0.0 {
            return invalid(format!("a rate of {} ids a second; it must be 0 or more", self.rate));
        }
        if self.max_waste == 0 || self.max_waste > MAX_LEN {
            return invalid(format!("a waste cap of {} ids; it must be 1 to 2^48", self.max_waste));
        }
        let plan = Policy::settled(self.rate, self.latency, Adaptive::of(self.outage_budget, self.max_waste));
        Ok(Sizes { step: plan.step, watermark: plan.watermark })
    }

    /// Returns the smallest waste cap that leaves the refill policy its watermark, which is for the outage
    /// budget and four latencies of the store, whatever [`max_waste`](Self::max_waste) says; at most 2^48.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid rate.
    pub fn least_waste(&self) -> Result<u64> {
        let sizes = Self { max_waste: MAX_LEN, ..*self }.sizes()?;
        Ok((sizes.watermark.saturating_mul(2)).clamp(1, MAX_LEN))
    }
}

impl Sizes {
    /// Returns the most ids in memory, which is what a crash wastes.
    pub fn most_in_memory(self) -> u64 {
        self.step.saturating_add(self.watermark)
    }

    /// Returns how long memory lasts at least when the store goes away: the time to draw the watermark at
    /// this rate.
    pub fn lasts(self, rate: f64) -> Duration {
        Duration::try_from_secs_f64(self.watermark as f64 / rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_workload_is_refused() {
        let workload =
            Workload { rate: 1.0, latency: Duration::ZERO, outage_budget: Duration::ZERO, max_waste: 1 };
        assert!(workload.sizes().is_ok());
        for rate in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(Workload { rate, ..workload }.sizes().is_err());
        }
        for max_waste in [0, MAX_LEN + 1] {
            assert!(Workload { max_waste, ..workload }.sizes().is_err());
        }
        let idle = Workload { rate: 0.0, max_waste: 100, ..workload }.sizes().unwrap();
        assert_eq!(idle.lasts(0.0), Duration::MAX);
    }

    #[test]
    fn an_outage_is_survived_with_something_to_spare() {
        let (minute, latency) = (Duration::from_secs(60), Duration::from_millis(10));
        let workload = Workload::surviving(minute, 500.0, latency).unwrap();
        assert_eq!(workload.outage_budget, Duration::from_millis(71_200));
        assert_eq!(workload.max_waste, workload.least_waste().unwrap());
        assert!(workload.sizes().unwrap().lasts(500.0) >= minute);
        assert!(Workload::surviving(Duration::MAX, 500.0, latency).is_ok());
    }

    proptest! {
        #[test]
        fn the_least_waste_leaves_the_watermark_and_less_does_not(
            rate in 10.0..1e6_f64, budget in 1..86_400_u64, millis in 0..1000_u64,
        ) {
            let workload = Workload {
                rate,
                latency: Duration::from_millis(millis),
                outage_budget: Duration::from_secs(budget),
                max_waste: 1,
            };
            let least = workload.least_waste().unwrap();
            let kept = Workload { max_waste: least, ..workload }.sizes().unwrap();
            prop_assert!(kept.lasts(rate) >= workload.outage_budget, "{:?} of {}", kept, least);
            prop_assert!(kept.most_in_memory() <= least);
            let half = Workload { max_waste: least / 2, ..workload }.sizes().unwrap();
            prop_assert!(half.lasts(rate) < workload.outage_budget + workload.latency * 4, "{:?}", half);
        }
    }
}
