//! The number of ids in memory after a burst: a grid of steady rates, bursts, outages and latencies.
//!
//! The bound is the policy's own (`src/refill/engine/policy.rs`). Watermark and step each cover the rate of
//! the last seconds for the duration of a refill, and half of the burst. Hence k = 2, plus a tenth for the
//! measurement error.

use std::time::Duration;

use idmill::Allocator;
use idmill_testing::faulty::Faults;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::World;

const K: f64 = 2.0 * 1.1;
/// The seconds over which the policy measures the rate.
const RATE_OVER: f64 = 2.0;
/// Ids in memory before any measurement.
const FIRST: f64 = 64.0;

const STEADY: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug)]
struct Case {
    rate: f64,
    burst: u32,
    outage: Duration,
    latency: Duration,
    budget: Duration,
}

impl Case {
    /// The maximum number of ids in memory. Callers catch up immediately on draws that they missed in the
    /// outage.
    fn most(self) -> f64 {
        let (latency, budget) = (self.latency.as_secs_f64(), self.budget.as_secs_f64());
        let burst = f64::from(self.burst) + self.rate * self.outage.as_secs_f64();
        let lasts = (budget + 4.0 * latency).max(0.1).max(20.0 * latency);
        K * (self.rate + burst / RATE_OVER) * lasts + burst + FIRST
    }

    async fn run(self) {
        let world = World::new(self.latency, |s| {
            s.outage_budget(self.budget).max_buffered(1 << 40).timeout(Duration::from_secs(3600))
        });
        let world = world.await;
        let (ids, rate) = (world.ids.clone(), self.rate);
        let steady = tokio::spawn(draws(ids, rate));
        self.watch(&world.ids, STEADY).await;
        world.store.set_faults(Faults::outage().latency(self.latency));
        self.watch(&world.ids, self.outage).await;
        world.store.set_faults(Faults::none().latency(self.latency));
        let ids = world.ids.clone();
        let burst = tokio::spawn(async move {
            for _ in 0..self.burst {
                ids.next().await.unwrap();
            }
        });
        self.watch(&world.ids, STEADY).await;
        assert!(burst.is_finished(), "{self:?}");
        steady.abort();
    }

    /// Checks memory often for a given time.
    async fn watch(self, ids: &Allocator<u64>, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(Duration::from_millis(20)).await;
            let remaining = ids.snapshot().remaining;
            assert!(
                remaining as f64 <= self.most(),
                "{remaining} in memory, more than {}: {self:?}",
                self.most()
            );
        }
    }
}

/// Draws at a rate, one id after the other. Missed draws are caught up immediately.
async fn draws(ids: Allocator<u64>, rate: f64) {
    let mut due = interval(Duration::from_secs_f64(1.0 / rate));
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        due.tick().await;
        ids.next().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn cached_ids_after_a_burst_are_bounded_by_burst_and_rate() {
    for rate in [10.0, 200.0] {
        for (burst, outage) in [(0, 34), (5_000, 0), (1_000, 5), (200, 60)] {
            for latency in [1, 20, 100].map(Duration::from_millis) {
                for budget in [0, 10].map(Duration::from_secs) {
                    let outage = Duration::from_secs(outage);
                    Case { rate, burst, outage, latency, budget }.run().await;
                }
            }
        }
    }
}
