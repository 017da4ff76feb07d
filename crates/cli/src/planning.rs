//! How large ranges must be, before there is any load to measure: the sizes at which the engine's refill
//! policy settles under a steady load.

use std::time::Duration;

use idmill::__private::settled;

/// The longest range that the engine keeps in memory.
pub(crate) const LONGEST_RANGE: u64 = 1 << 48;
/// The rate is measured, so it has an error: how much longer than an outage the budget must be to cover it.
const HEADROOM: f64 = 1.02;
/// The longest pause between two tries of a reserve, with jitter: the store's return may be noticed this
/// late. The pause grows from almost nothing, and is never longer than the outage so far.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The rate at which one process draws from one sequence, and the outage it must survive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Ids drawn per second; 0 or more.
    pub(crate) rate: f64,
    /// How long the store takes to answer a reserve.
    pub(crate) latency: Duration,
    /// How long to keep serving while the store is away.
    pub(crate) outage_budget: Duration,
    /// The most ids in memory, 1 to 2^48; wins over the budget.
    pub(crate) max_waste: u64,
}

/// The sizes that the refill policy settles at under a steady load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// How many ids a refill reserves.
    pub(crate) step: u64,
    /// How many ids remain when the refill starts.
    pub(crate) watermark: u64,
}

impl Workload {
    /// Returns the workload that draws at this rate through an outage of the store. Its budget is the length
    /// of the outage, plus 2 % since rates are measured, plus up to 10 s until the store's return is noticed;
    /// its waste cap is the [least waste](Self::least_waste) that this costs.
    pub(crate) fn surviving(outage: Duration, rate: f64, latency: Duration) -> Self {
        let longer = Duration::try_from_secs_f64(outage.as_secs_f64() * HEADROOM).unwrap_or(Duration::MAX);
        let outage_budget = longer.saturating_add(outage.min(LONGEST_PAUSE));
        let workload = Self { rate, latency, outage_budget, max_waste: 1 };
        Self { max_waste: workload.least_waste(), ..workload }
    }

    /// Returns the sizes that an adaptive sequence with these settings settles at.
    pub(crate) fn sizes(&self) -> Sizes {
        let Self { rate, latency, outage_budget, max_waste } = *self;
        let (step, watermark) = settled(rate, latency, outage_budget, max_waste);
        Sizes { step, watermark }
    }

    /// Returns the smallest waste cap that leaves the refill policy its watermark, which is for the outage
    /// budget and four latencies of the store, whatever [`max_waste`](Self::max_waste) says; at most 2^48.
    pub(crate) fn least_waste(&self) -> u64 {
        let sizes = Self { max_waste: LONGEST_RANGE, ..*self }.sizes();
        sizes.watermark.saturating_mul(2).clamp(1, LONGEST_RANGE)
    }
}

impl Sizes {
    /// Returns the most ids in memory, which is what a crash wastes.
    pub(crate) fn most_in_memory(self) -> u64 {
        self.step.saturating_add(self.watermark)
    }

    /// Returns how long memory lasts at least when the store goes away: the time to draw the watermark at
    /// this rate.
    pub(crate) fn lasts(self, rate: f64) -> Duration {
        Duration::try_from_secs_f64(self.watermark as f64 / rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documented_workload_has_its_sizes() {
        let workload = Workload {
            rate: 500.0,
            latency: Duration::from_millis(20),
            outage_budget: Duration::from_secs(60),
            max_waste: 100_000,
        };
        let sizes = workload.sizes();
        assert_eq!(sizes.watermark, 30_040); // 500 × (60 s + 4 × 20 ms)
        assert!(sizes.lasts(workload.rate) >= workload.outage_budget);
        let idle = Workload { rate: 0.0, max_waste: 100, ..workload }.sizes();
        assert_eq!(idle.lasts(0.0), Duration::MAX);
        let least = Workload { max_waste: 1, ..workload }.sizes();
        assert_eq!(least, Sizes { step: 1, watermark: 0 });
    }

    #[test]
    fn an_outage_is_survived_with_something_to_spare() {
        let (minute, latency) = (Duration::from_secs(60), Duration::from_millis(10));
        let workload = Workload::surviving(minute, 500.0, latency);
        assert_eq!(workload.outage_budget, Duration::from_millis(71_200));
        assert_eq!(workload.max_waste, workload.least_waste());
        assert!(workload.sizes().lasts(500.0) >= minute);
        assert!(Workload::surviving(Duration::MAX, 500.0, latency).max_waste > 0);
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
            let least = workload.least_waste();
            let kept = Workload { max_waste: least, ..workload }.sizes();
            prop_assert!(kept.lasts(rate) >= workload.outage_budget, "{:?} of {}", kept, least);
            prop_assert!(kept.most_in_memory() <= least);
            let half = Workload { max_waste: least / 2, ..workload }.sizes();
            prop_assert!(half.lasts(rate) < workload.outage_budget + workload.latency * 4, "{:?}", half);
        }
    }
}
