//! Computes range sizes for an expected load: the sizes at which the engine's refill policy settles.

use std::time::Duration;

use idmill::__private::settled;

/// The longest range that the engine keeps in memory.
pub(crate) const LONGEST_RANGE: u64 = 1 << 48;
/// Ratio of the budget to the outage. The excess covers the error of the measured rate.
const HEADROOM: f64 = 1.02;
/// The longest pause between two attempts of a reserve, with jitter. The store's return is detected after at
/// most this pause, if requests do not hang. The pauses begin at 10 ms and double, each with a jitter of up
/// to its own length.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The rate at which one process draws from one sequence, and the outage it must survive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Ids per second; 0 or more.
    pub(crate) rate: f64,
    /// Latency of a reserve.
    pub(crate) latency: Duration,
    /// How long to serve while the store is unreachable.
    pub(crate) outage_budget: Duration,
    /// Maximum number of ids in memory, 1 to 2^48. Takes precedence over the budget.
    pub(crate) max_buffered: u64,
}

/// The sizes at which the refill policy settles under a steady load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Number of ids per refill.
    pub(crate) step: u64,
    /// Number of ids left when a refill starts.
    pub(crate) watermark: u64,
}

impl Workload {
    /// Returns the workload that draws at this rate through an outage of the store.
    ///
    /// The budget is the length of the outage, plus 2 % for the error of the measured rate, plus up to 10 s
    /// until the store's return is detected. `max_buffered` is the [least waste](Self::least_waste) for this
    /// budget.
    pub(crate) fn surviving(outage: Duration, rate: f64, latency: Duration) -> Self {
        let longer = Duration::try_from_secs_f64(outage.as_secs_f64() * HEADROOM).unwrap_or(Duration::MAX);
        let outage_budget = longer.saturating_add(outage.min(LONGEST_PAUSE));
        let workload = Self { rate, latency, outage_budget, max_buffered: 1 };
        Self { max_buffered: workload.least_waste(), ..workload }
    }

    /// Returns the sizes at which an adaptive sequence with these settings settles.
    pub(crate) fn sizes(&self) -> Sizes {
        let Self { rate, latency, outage_budget, max_buffered } = *self;
        let (step, watermark) = settled(rate, latency, outage_budget, max_buffered);
        Sizes { step, watermark }
    }

    /// Returns the smallest `max_buffered` that does not lower the watermark, at most 2^48. The watermark
    /// covers the outage budget and four latencies of the store. The current
    /// [`max_buffered`](Self::max_buffered) is ignored.
    pub(crate) fn least_waste(&self) -> u64 {
        let sizes = Self { max_buffered: LONGEST_RANGE, ..*self }.sizes();
        sizes.watermark.saturating_mul(2).clamp(1, LONGEST_RANGE)
    }
}

impl Sizes {
    /// Returns the maximum number of ids in memory, which a crash wastes.
    pub(crate) fn most_in_memory(self) -> u64 {
        self.step.saturating_add(self.watermark)
    }

    /// Returns the minimum time that memory lasts without the store: the time to draw the watermark at this
    /// rate.
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
            max_buffered: 100_000,
        };
        let sizes = workload.sizes();
        assert_eq!(sizes.watermark, 30_040); // 500 × (60 s + 4 × 20 ms)
        assert!(sizes.lasts(workload.rate) >= workload.outage_budget);
        let idle = Workload { rate: 0.0, max_buffered: 100, ..workload }.sizes();
        assert_eq!(idle.lasts(0.0), Duration::MAX);
        let least = Workload { max_buffered: 1, ..workload }.sizes();
        assert_eq!(least, Sizes { step: 1, watermark: 0 });
    }

    #[test]
    fn outage_is_survived_with_ids_to_spare() {
        let (minute, latency) = (Duration::from_secs(60), Duration::from_millis(10));
        let workload = Workload::surviving(minute, 500.0, latency);
        assert_eq!(workload.outage_budget, Duration::from_millis(71_200));
        assert_eq!(workload.max_buffered, workload.least_waste());
        assert!(workload.sizes().lasts(500.0) >= minute);
        assert!(Workload::surviving(Duration::MAX, 500.0, latency).max_buffered > 0);
    }

    proptest! {
        #[test]
        fn least_waste_keeps_the_watermark_and_less_lowers_it(
            rate in 10.0..1e6_f64, budget in 1..86_400_u64, millis in 0..1000_u64,
        ) {
            let workload = Workload {
                rate,
                latency: Duration::from_millis(millis),
                outage_budget: Duration::from_secs(budget),
                max_buffered: 1,
            };
            let least = workload.least_waste();
            let kept = Workload { max_buffered: least, ..workload }.sizes();
            prop_assert!(kept.lasts(rate) >= workload.outage_budget, "{:?} of {}", kept, least);
            prop_assert!(kept.most_in_memory() <= least);
            let half = Workload { max_buffered: least / 2, ..workload }.sizes();
            prop_assert!(half.lasts(rate) < workload.outage_budget + workload.latency * 4, "{:?}", half);
        }
    }
}
