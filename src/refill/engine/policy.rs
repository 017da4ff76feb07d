//! How many ids to reserve, and when: pure arithmetic over measurements.
//!
//! The adaptive sizes follow from three measurements: the rate of draws over the last two seconds, the pace
//! of draws over the last reserve (at least the rate), and the store's latency:
//!
//! ```text
//!   watermark = rate × outage budget + pace × 4 latencies    a refill starts: the rest outlasts an outage
//!   step      = rate × max(0.1 s, 20 latencies)              a refill is rare compared with its cost,
//!               at least rate × (budget + 4 latencies)       one refill gets back above the watermark,
//!               and rate × budget + pace × half a latency    and reserves more if the load has just grown
//! ```
//!
//! The watermark is never above the step. Together they are at most `max_buffered`, which also bounds the ids
//! in memory that a restart loses. The step grows at most fourfold from one refill to the next.
//!
//! *A burst adds at most its own size.* B ids drawn in one burst raise the rate by B per two seconds (in a
//! new sequence, up to 2.6 times that), and the pace by B per latency. So the step grows by half of B, and
//! the watermark, which is at most the step, by the same amount. So memory never holds more than 2 × rate ×
//! max(budget + 4 latencies, 0.1 s, 20 latencies) + B ids, where the rate includes the burst's share.
//!
//! *If the load grows tenfold and stays high, callers wait once.* One unit here is the number of ids drawn in
//! one latency at the old rate R. The step is 20 units. When the waiting callers have been served, at most 6
//! units of the step are drawn and at least 14 are left. The next refill must start at 10 units, which the
//! new load draws in one latency. The last watermark, 4 units, was drawn within one latency, so the pace
//! rises to at least 2.9 R, which gives a watermark of 11 units.

use std::time::Duration;

use crate::state::settings::{Adaptive, Sizing};
use crate::state::time::Time;

/// The sizes of the next refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) step: u64,
    pub(crate) watermark: u64,
}

/// The rate is measured over this time in seconds, and the pace over this number of latencies.
const RATE_OVER: f64 = 2.0;
const PACE_OVER: f64 = 1.0;
/// The minimum and maximum age of a rate, in seconds: beyond the maximum, the age makes no difference.
const YOUNGEST: f64 = 1.0;
const AGED: f64 = 20.0;
/// The factor by which a latency peak decays per refill.
const PEAK_DECAY: f64 = 0.9;
/// The ids of a refill last at least this long, in seconds, and this many times the store's latency.
const SHORTEST_REFILL: f64 = 0.1;
const REFILL_PER_LATENCY: f64 = 20.0;
const LATENCY_MARGIN: f64 = 4.0;
/// The ids of a refill last at least this many latencies at the current pace: half of the pace's measuring
/// time.
const PACE_MARGIN: f64 = PACE_OVER / 2.0;

#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Estimates: ids drawn per second, over the last seconds and over the last reserve, and the store's
    /// latency in seconds.
    rate: f64,
    pace: f64,
    /// How long the rate has been measured, up to [`AGED`]. Earlier draws are unknown and count as none.
    age: f64,
    latency: f64,
    /// Time and total of the last sample.
    seen: Option<(Time, u64)>,
    plan: Plan,
}

impl Policy {
    pub(crate) fn new(sizing: &Sizing) -> Self {
        let plan = match *sizing {
            Sizing::Fixed { step, watermark } => Plan { step, watermark },
            Sizing::Adaptive(Adaptive { min_step, max_buffered, .. }) => {
                Plan { step: min_step, watermark: (min_step / 2).min(max_buffered - min_step) }
            }
        };
        Self { rate: 0.0, pace: 0.0, age: YOUNGEST, latency: 0.0, seen: None, plan }
    }

    /// Returns the sizes to use now.
    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    /// Returns the estimated ids drawn per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Notes that `total` ids had been drawn at `now`.
    pub(crate) fn drawn(&mut self, total: u64, now: Time) {
        let Some((since, before)) = self.seen else {
            self.seen = Some((now, total));
            return;
        };
        let elapsed = now.saturating_sub(since).as_secs_f64();
        // Two samples at the same instant measure nothing; the ids of the second count in the next one.
        if elapsed <= 0.0 {
            return;
        }
        let sample = total.saturating_sub(before) as f64 / elapsed;
        self.age = (self.age + elapsed).clamp(YOUNGEST, AGED);
        let known = (share(elapsed, RATE_OVER) / share(self.age, RATE_OVER)).min(1.0);
        self.rate += (sample - self.rate) * known;
        self.pace += (sample - self.pace) * share(elapsed, PACE_OVER * self.latency);
        self.seen = Some((now, total));
    }

    /// Notes the latency of a reserve.
    pub(crate) fn note_latency(&mut self, latency: Duration) {
        self.latency = latency.as_secs_f64().max(self.latency * PEAK_DECAY);
    }

    /// Computes the sizes again, after a grant.
    pub(crate) fn adapt(&mut self, sizing: &Sizing) {
        if let Sizing::Adaptive(settings) = sizing {
            self.plan = self.adapted(*settings);
        }
    }

    fn adapted(&self, settings: Adaptive) -> Plan {
        let (cap, latency, pace) = (settings.max_buffered, self.latency, self.pace.max(self.rate));
        let outage = self.rate * settings.outage_budget.as_secs_f64();
        let least = settings.min_step / 2;
        let watermark = ids(outage + pace * LATENCY_MARGIN * latency).clamp(least.min(cap / 2), cap / 2);
        let lasting = self.rate * SHORTEST_REFILL.max(REFILL_PER_LATENCY * latency);
        let back = outage + (self.rate * LATENCY_MARGIN).max(pace * PACE_MARGIN) * latency;
        let step = ids(lasting.max(back)).clamp(settings.min_step, cap.max(settings.min_step));
        let step = step.min(self.plan.step.saturating_mul(4)).min((cap - watermark).max(1));
        // One refill must raise the level to at least the watermark.
        Plan { step, watermark: watermark.min(step) }
    }
}

/// Returns the stable step and watermark under a steady load of `rate` ids a second. `max_buffered` is 1 to
/// 2^48.
pub fn settled(rate: f64, latency: Duration, outage_budget: Duration, max_buffered: u64) -> (u64, u64) {
    let plan = Plan { step: u64::MAX, watermark: 0 };
    let policy = Policy { rate, pace: rate, age: AGED, latency: latency.as_secs_f64(), seen: None, plan };
    let Plan { step, watermark } = policy.adapted(Adaptive::of(outage_budget, max_buffered));
    (step, watermark)
}

/// Returns the weight of a sample over `elapsed` seconds in an average over `over` seconds.
fn share(elapsed: f64, over: f64) -> f64 {
    1.0 - (-elapsed / over).exp()
}

// Saturates: no rate exceeds 2^64 ids a second, and finite measurements never give NaN.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ids(count: f64) -> u64 {
    count.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::segment::MAX_LEN;
    use proptest::prelude::*;

    fn steady(settings: Adaptive, rate: u64, latency: Duration, seconds: u64) -> Policy {
        let sizing = Sizing::Adaptive(settings);
        let mut policy = Policy::new(&sizing);
        for tick in 0..seconds * 100 {
            policy.drawn(rate * tick / 100, Duration::from_millis(10 * tick));
            policy.note_latency(latency);
            policy.adapt(&sizing);
        }
        policy
    }

    #[test]
    fn outage_budget_is_met_within_max_buffered() {
        let settings = Adaptive {
            outage_budget: Duration::from_secs(300),
            max_buffered: 10_000_000,
            min_step: 32,
            by_bounds: false,
        };
        let plan = steady(settings, 1000, Duration::from_millis(10), 20).plan();
        assert!((300_000..320_000).contains(&plan.watermark), "{plan:?}");
        assert!(plan.step >= plan.watermark);
        let capped =
            steady(Adaptive { max_buffered: 1000, ..settings }, 1000, Duration::from_millis(10), 20).plan();
        assert_eq!(capped, Plan { step: 500, watermark: 500 });
    }

    #[test]
    fn steady_load_settles_at_the_computed_plan() {
        let settings = Adaptive::of(Duration::from_secs(30), 1 << 30);
        let latency = Duration::from_millis(10);
        let plan = steady(settings, 10_000, latency, 30).plan();
        let (step, watermark) = settled(1e4, latency, settings.outage_budget, settings.max_buffered);
        assert!(plan.step.abs_diff(step) < step / 1000, "{plan:?} {step}");
        assert!(plan.watermark.abs_diff(watermark) < watermark / 1000, "{plan:?} {watermark}");
    }

    #[test]
    fn the_watermark_covers_the_latency_without_any_budget() {
        let settings =
            Adaptive { outage_budget: Duration::ZERO, max_buffered: 1 << 40, min_step: 1, by_bounds: false };
        let plan = steady(settings, 1_000_000, Duration::from_millis(100), 20).plan();
        assert!(plan.watermark >= 400_000 && plan.watermark < 500_000, "{plan:?}");
    }

    #[test]
    fn burst_grows_the_step_at_most_fourfold_lull_shrinks_it() {
        let settings = Adaptive {
            outage_budget: Duration::from_secs(1),
            max_buffered: 1 << 40,
            min_step: 16,
            by_bounds: false,
        };
        let sizing = Sizing::Adaptive(settings);
        let mut policy = Policy::new(&sizing);
        policy.drawn(0, Duration::ZERO);
        policy.drawn(1 << 30, Duration::from_millis(1));
        policy.note_latency(Duration::from_millis(1));
        policy.adapt(&sizing);
        assert_eq!(policy.plan().step, 64);
        let mut policy = steady(settings, 1_000_000, Duration::from_millis(1), 10);
        assert!(policy.plan().step > 900_000);
        policy.drawn(10_000_000, Duration::from_secs(3600));
        policy.note_latency(Duration::from_millis(1));
        policy.adapt(&sizing);
        assert!(policy.plan().step < 100_000, "{:?}", policy.plan());
    }

    proptest! {
        #[test]
        fn no_plan_breaks_its_promises(
            max_buffered in prop_oneof![1..5_u64, 1..1_000_000_u64, Just(MAX_LEN)],
            min_step in 1..100_u64,
            budget in 0..1_000_u64,
            events in prop::collection::vec((0..2_000_000_000_u64, 0..50_000_000_u64, 0..3_000_u64), 1..50),
        ) {
            let min_step = min_step.min(max_buffered);
            let settings = Adaptive { outage_budget: Duration::from_secs(budget), max_buffered, min_step, by_bounds: false };
            let sizing = Sizing::Adaptive(settings);
            sizing.check().unwrap();
            let mut policy = Policy::new(&sizing);
            let (mut now, mut total) = (Duration::ZERO, 0);
            for (ids, micros, latency) in events {
                now += Duration::from_micros(micros);
                total += ids;
                policy.drawn(total, now);
                policy.note_latency(Duration::from_millis(latency));
            policy.adapt(&sizing);
                let plan = policy.plan();
                prop_assert!(plan.step >= 1 && plan.watermark <= plan.step, "{:?}", plan);
                prop_assert!(plan.step + plan.watermark <= max_buffered.max(1), "{:?} over {}", plan, max_buffered);
                prop_assert!(policy.rate().is_finite() && policy.rate() >= 0.0);
            }
        }
    }
}
