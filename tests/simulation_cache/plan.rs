//! The events of one seed: all random values are drawn here or from generators that are seeded here.

use std::time::Duration;

use fastrand::Rng;

use crate::network::Weather;
use crate::server::Lie;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) lie: Lie,
    pub(crate) block: u64,
    pub(crate) max_skip: Option<Duration>,
    pub(crate) stub: Duration,
    pub(crate) timeout: Duration,
    pub(crate) weather: Weather,
    pub(crate) store: StorePlan,
    /// The duration of the faults: no fault begins later.
    pub(crate) lasts: Duration,
    pub(crate) processes: Vec<ProcessPlan>,
    /// The time of each eviction of all items.
    pub(crate) evictions: Vec<Duration>,
    /// The time of each server restart, and how long the server is unreachable.
    pub(crate) restarts: Vec<(Duration, Duration)>,
    /// The time of each reserve that bypasses the window, and the number of ids.
    pub(crate) strangers: Vec<(Duration, u64)>,
}

/// The store: its latency, and the probability of each fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StorePlan {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
    pub(crate) lost: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) seed: u64,
    pub(crate) callers: usize,
    /// The maximum number of ids that a caller takes at a time.
    pub(crate) count: u64,
    /// Between calls, a caller pauses for this time, plus up to half of it.
    pub(crate) think: Duration,
    /// The duration of each life but the last, which lasts to the end.
    pub(crate) crashes: Vec<Duration>,
}

fn millis(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

impl Plan {
    /// Every fourth world has a working network and store, and only the cache loses items and restarts.
    /// Another fourth is [`restless`](Self::restless).
    pub(crate) fn of(seed: u64, lie: Lie) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let plan = Self::stormy(seed, lie, rng, seed.is_multiple_of(4));
        if seed % 4 == 3 { plan.restless(rng) } else { plan }
    }

    /// The server restarts again and again, each time with a cas that starts from the beginning, while
    /// refills are in flight.
    fn restless(mut self, rng: &mut Rng) -> Self {
        (self.lasts, self.weather) = (Duration::from_secs(40), Weather::default());
        self.restarts = (0..80).map(|n| (Duration::from_millis(500 * n), millis(rng, 0..20))).collect();
        (self.evictions, self.block) = (Vec::new(), rng.u64(2..6));
        self.strangers.retain(|(at, _)| *at < self.lasts);
        self.store = StorePlan { longest: Duration::from_millis(1_500), ..self.store };
        let process = || ProcessPlan { callers: 3, count: 1, ..process(rng, self.lasts, 400) };
        self.processes = std::iter::repeat_with(process).take(4).collect();
        self
    }

    fn stormy(seed: u64, lie: Lie, rng: &mut Rng, calm: bool) -> Self {
        let lasts = millis(rng, 20_000..200_000);
        let times = |rng: &mut Rng, most| -> Vec<Duration> {
            (0..rng.usize(0..most)).map(|_| lasts.mul_f64(rng.f64())).collect()
        };
        let (evictions, restarts, strangers) = (times(rng, 100), times(rng, 8), times(rng, 6));
        let processes = rng.usize(1..=5);
        let calls = u32::try_from(1_500 / processes).expect("few");
        Self {
            seed,
            lie,
            block: [1, 2, 7, 40, 300, 1_000][rng.usize(0..6)],
            max_skip: [None, Some(500), Some(2_000), Some(5_000)][rng.usize(0..4)].map(Duration::from_millis),
            stub: Duration::from_secs(rng.u64(2..=5)),
            timeout: millis(rng, 100..2_000),
            weather: if calm { Weather::default() } else { weather(rng) },
            store: store(rng, calm),
            lasts,
            processes: (0..processes).map(|_| process(rng, lasts, calls)).collect(),
            evictions,
            restarts: restarts.into_iter().map(|at| (at, millis(rng, 0..3_000))).collect(),
            strangers: strangers.into_iter().map(|at| (at, rng.u64(1..100))).collect(),
        }
    }
}

fn process(rng: &mut Rng, lasts: Duration, calls: u32) -> ProcessPlan {
    let callers = rng.usize(1..=4);
    let crashes = if rng.u32(0..100) < 30 { rng.usize(1..=3) } else { 0 };
    ProcessPlan {
        seed: rng.u64(..),
        callers,
        count: [1, 1, 7, 100][rng.usize(0..4)],
        think: lasts * u32::try_from(callers).expect("few") / rng.u32(calls / 10..calls),
        crashes: (0..crashes).map(|_| lasts.mul_f64(rng.f64() / 2.0)).collect(),
    }
}

fn weather(rng: &mut Rng) -> Weather {
    let mut permille = |most| if rng.bool() { rng.u32(0..most) } else { 0 };
    Weather {
        cut_before: permille(50),
        cut_after: permille(50),
        late: permille(30),
        slow_answer: permille(30),
    }
}

fn store(rng: &mut Rng, calm: bool) -> StorePlan {
    let longest = if calm { 20 } else { [20, 200, 4_000, 12_000][rng.usize(0..4)] };
    StorePlan {
        shortest: Duration::from_millis(1),
        longest: Duration::from_millis(longest),
        lost: if calm || rng.bool() { 0.0 } else { 0.1 * rng.f64() },
    }
}
