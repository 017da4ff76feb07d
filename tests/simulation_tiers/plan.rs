//! The events of one seed: all random values are drawn here or from generators that are seeded here.

use std::time::Duration;

use fastrand::Rng;
use idmill_shared_cache::Sizing;

use crate::cluster::Weather;
use crate::window::Bug;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) bug: Bug,
    pub(crate) datacenters: usize,
    pub(crate) start: u64,
    pub(crate) max: u64,
    /// Number of ids in a claim.
    pub(crate) range: u64,
    /// A refill begins when this number of ids is left.
    pub(crate) threshold: u64,
    pub(crate) weather: Weather,
    /// The duration of the faults: no fault begins later.
    pub(crate) lasts: Duration,
    pub(crate) processes: Vec<ProcessPlan>,
    pub(crate) isolations: Vec<Isolation>,
    /// The longest isolation that the windows are sized for: no caller may notice it.
    pub(crate) sized_for: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) datacenter: usize,
    pub(crate) seed: u64,
    pub(crate) callers: usize,
    /// Number of ids that the process takes at a time.
    pub(crate) step: u64,
    /// Between calls, a caller pauses for this time, plus up to half of it.
    pub(crate) think: Duration,
    pub(crate) timeout: Duration,
    /// The duration of each life but the last, which lasts to the end.
    pub(crate) crashes: Vec<Duration>,
    pub(crate) pauses: Vec<(Duration, Duration)>,
}

/// A datacenter is cut off from the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Isolation {
    pub(crate) datacenter: usize,
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
}

const HOUR: Duration = Duration::from_secs(3600);

fn within(rng: &mut Rng, most: Duration) -> Duration {
    most.mul_f64(rng.f64())
}

impl Plan {
    /// Every tenth world has [`sized`](Self::sized) windows, and every fortieth is
    /// [`crowded`](Self::crowded).
    pub(crate) fn of(seed: u64, bug: Bug) -> Self {
        let mut rng = Rng::with_seed(seed);
        match seed % 10 {
            0 => Self::sized(seed, bug, &mut rng),
            1 if seed % 40 == 1 => Self::crowded(seed, bug, &mut rng),
            _ => Self::stormy(seed, bug, &mut rng, 8),
        }
    }

    /// All faults, with a few processes.
    fn stormy(seed: u64, bug: Bug, rng: &mut Rng, most: usize) -> Self {
        let datacenters = rng.usize(1..=5);
        let lasts = [HOUR / 6, HOUR, 4 * HOUR][rng.usize(0..3)];
        let range = rng.u64(1..200);
        let start = [0, 1, 1000][rng.usize(0..3)];
        let max = if rng.bool() { start + rng.u64(50..3_000) } else { u64::MAX };
        let processes = (0..datacenters).flat_map(|datacenter| vec![datacenter; rng.usize(1..=most)]);
        let processes: Vec<_> = processes.collect();
        let calls = 6_000 / processes.len().max(1);
        let process = |datacenter| process(rng, datacenter, lasts, u32::try_from(calls).expect("few"));
        let processes = processes.into_iter().map(process).collect();
        let isolation = |rng: &mut Rng| Isolation {
            datacenter: rng.usize(0..datacenters),
            at: within(rng, lasts),
            lasts: within(rng, lasts),
        };
        let isolations = (0..rng.usize(0..4)).map(|_| isolation(rng)).collect();
        Self {
            seed,
            bug,
            datacenters,
            start,
            max,
            range,
            threshold: rng.u64(0..=range),
            weather: weather(rng),
            lasts,
            processes,
            isolations,
            sized_for: None,
        }
    }

    /// Like `stormy`, with more than a thousand processes.
    fn crowded(seed: u64, bug: Bug, rng: &mut Rng) -> Self {
        let mut plan = Self::stormy(seed, bug, rng, 8);
        (plan.datacenters, plan.max, plan.range) = (5, u64::MAX, 20_000);
        plan.threshold = 10_000;
        let process = |n: usize| process(rng, n % 5, plan.lasts, 15);
        plan.processes = (0..1_200).map(process).collect();
        plan
    }

    /// Windows large enough for hours of isolation, and no fault except one isolation.
    fn sized(seed: u64, bug: Bug, rng: &mut Rng) -> Self {
        let (datacenters, each, callers) = (rng.usize(2..=5), rng.usize(2..=6), 2);
        let isolation = HOUR * rng.u32(6..=24);
        let think = isolation / rng.u32(300..=600);
        let rate = (each * callers) as f64 / think.as_secs_f64();
        let all = u32::try_from(datacenters).expect("few");
        let sizing = Sizing::new(rate, isolation).datacenters(all).threshold(rng.u8(40..=80));
        let sized = sizing.plan().expect("a size");
        let threshold = if bug == Bug::Undersized { sized.threshold_ids / 4 } else { sized.threshold_ids };
        let cut = Isolation { datacenter: 0, at: isolation.mul_f64(0.2 + rng.f64()), lasts: isolation * 2 };
        let process = |n: usize| ProcessPlan {
            callers,
            step: 1,
            think,
            timeout: Duration::from_secs(30),
            crashes: Vec::new(),
            pauses: Vec::new(),
            ..process(rng, n % datacenters, HOUR, 1)
        };
        Self {
            seed,
            bug,
            datacenters,
            start: 1,
            max: u64::MAX,
            range: sized.range,
            threshold,
            weather: Weather::default(),
            lasts: cut.at + isolation * 6,
            processes: (0..datacenters * each).map(process).collect(),
            isolations: vec![cut],
            sized_for: Some(isolation),
        }
    }
}

fn process(rng: &mut Rng, datacenter: usize, lasts: Duration, calls: u32) -> ProcessPlan {
    let crashes = if rng.u32(0..100) < 40 { rng.usize(1..=3) } else { 0 };
    let pauses = if rng.u32(0..100) < 30 { rng.usize(1..=3) } else { 0 };
    ProcessPlan {
        datacenter,
        seed: rng.u64(..),
        callers: rng.usize(1..=3),
        step: rng.u64(1..30),
        think: lasts / calls.max(1),
        timeout: Duration::from_secs(rng.u64(1..120)),
        crashes: (0..crashes).map(|_| within(rng, lasts / 2)).collect(),
        pauses: (0..pauses).map(|_| (within(rng, lasts), within(rng, lasts / 4))).collect(),
    }
}

fn weather(rng: &mut Rng) -> Weather {
    let mut percent = |most| if rng.bool() { rng.u32(0..most) } else { 0 };
    Weather { lost_request: percent(10), lost_reply: percent(15), late: percent(15), refused: percent(10) }
}
