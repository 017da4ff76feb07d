//! Waiting callers: the refill policy under steps in load, daily load curves and slow stores, over a grid of
//! rates, latencies and sizes. The tests use the real engine in simulated time, over a store in memory. The
//! tests of `idmill-sqlite` do the same over a real file.

mod bursts;

use std::time::Duration;

use idmill::{Allocator, SequenceBuilder, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::load::{AFTER, CALLERS, SETTLED, Seen, at_least, load};

/// A world of one process over one store.
struct World {
    store: FaultyStore,
    latency: Duration,
    ids: Allocator<u64>,
    _sequences: Sequences,
}

impl World {
    async fn new(
        latency: Duration,
        settings: impl FnOnce(SequenceBuilder<u64>) -> SequenceBuilder<u64>,
    ) -> Self {
        let store = FaultyStore::with_faults(Faults::none().latency(latency)).recording();
        let sequences = Sequences::builder(store.clone()).seed(1).start().unwrap();
        let ids = settings(sequences.sequence::<u64>("s")).await.unwrap();
        ids.warm(1).await.unwrap();
        Self { store, latency, ids, _sequences: sequences }
    }

    /// All callers draw for the given time, at a rate that depends on the time.
    async fn load(&self, time: Duration, rate: impl Fn(Duration) -> f64 + Clone + Send + 'static) -> Seen {
        load(&self.ids, time, rate).await
    }

    fn slow(&self, factor: u32) {
        self.store.set_faults(Faults::none().latency(self.latency * factor));
    }
}

const RATES: [f64; 3] = [100.0, 10_000.0, 1_000_000.0];
/// Each latency is well above a millisecond, the resolution of simulated time.
const LATENCIES: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(100)];

fn grid() -> impl Iterator<Item = (f64, Duration)> {
    RATES.iter().flat_map(|rate| LATENCIES.map(|latency| (*rate, latency)))
}

#[tokio::test(start_paused = true)]
async fn tenfold_load_costs_at_most_one_wait_none_with_budget() {
    for (rate, latency) in grid() {
        for (budget, most) in [(Duration::ZERO, 1), (Duration::from_secs(5), 0)] {
            let world = World::new(latency, |s| s.outage_budget(budget).max_buffered(1 << 40)).await;
            world.load(SETTLED, move |_| rate).await;
            let seen = world.load(AFTER, move |_| 10.0 * rate).await;
            assert!(seen.most() <= most, "{rate}/s over {latency:?} with {budget:?}: {seen:?}");
            assert!(seen.longest <= latency, "a wait was longer than one reserve: {seen:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn watermark_covering_a_refill_makes_no_call_wait() {
    for (rate, latency) in grid() {
        // The draws during a refill, plus the maximum number of draws at one instant.
        let covers = at_least(rate * latency.as_secs_f64()) + u64::from(CALLERS) + at_least(rate / 1000.0);
        for step in [covers, 4 * covers] {
            let world = World::new(latency, |s| s.step(step).watermark(covers)).await;
            let seen = world.load(AFTER, move |_| rate).await;
            assert_eq!(seen.most(), 0, "{rate}/s over {latency:?}, step {step}: {seen:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn daily_load_cycle_makes_no_call_wait() {
    const DAY: f64 = 120.0;
    for latency in LATENCIES {
        let world = World::new(latency, |s| s.outage_budget(Duration::ZERO).max_buffered(1 << 40)).await;
        let share = |at: Duration| 0.55 - 0.45 * (at.as_secs_f64() / DAY * std::f64::consts::TAU).cos();
        world.load(SETTLED, move |_| 100.0).await;
        let seen = world.load(Duration::from_secs_f64(DAY), move |at| 1000.0 * share(at)).await;
        assert_eq!(seen.most(), 0, "over {latency:?}: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slowdown_within_the_outage_budget_makes_no_call_wait() {
    for (rate, latency) in grid() {
        let budget = 20 * latency;
        let world = World::new(latency, |s| s.outage_budget(budget).max_buffered(1 << 40)).await;
        world.load(SETTLED, move |_| rate).await;
        world.slow(20);
        let seen = world.load(AFTER + 40 * latency, move |_| rate).await;
        assert_eq!(seen.most(), 0, "{rate}/s over {latency:?}: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn under_a_steady_load_the_step_settles_and_stays() {
    for (rate, latency) in grid() {
        let world = World::new(latency, |s| s.outage_budget(Duration::ZERO).max_buffered(1 << 40)).await;
        world.load(3 * SETTLED, move |_| rate).await;
        let before = world.store.granted("s").len();
        world.load(10 * AFTER, move |_| rate).await;
        let steps: Vec<u64> =
            world.store.granted("s")[before..].iter().map(|grant| grant.range.len()).collect();
        let (least, most) = (*steps.iter().min().unwrap(), *steps.iter().max().unwrap());
        assert!(steps.len() > 4 && most <= least + least / 4 + 1, "{rate}/s over {latency:?}: {steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowd_before_an_empty_memory_is_served_by_one_reserve() {
    let world = World::new(Duration::from_millis(50), |s| s.step(10_000).watermark(0)).await;
    let _ = world.ids.take(10_000).await.unwrap();
    let before = world.store.reserves();
    let crowd: Vec<_> = (0..5_000)
        .map(|_| {
            tokio::spawn({
                let ids = world.ids.clone();
                async move { ids.next().await.unwrap() }
            })
        })
        .collect();
    let mut ids = Vec::new();
    for caller in crowd {
        ids.push(caller.await.unwrap());
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), world.store.reserves() - before), (5_000, 1));
}
