//! The events of one seed: all random values are drawn here or from generators that are seeded here.

use std::time::Duration;

use fastrand::Rng;
use idmill::{ErrorKind, Order};
use idmill_testing::faulty::{Fault, Faults};

/// A planted bug, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A `take` that has to wait first takes all ids in memory.
    TakeDrainsMemory,
    /// After all faults, a thread of the process is blocked for a while at each reserve.
    WorkerIsBlocked,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) bug: Bug,
    pub(crate) sequences: Vec<SequencePlan>,
    pub(crate) processes: Vec<ProcessPlan>,
    pub(crate) weather: Weather,
    /// No faults, no crash, and a watermark that covers latency × rate: then no caller may ever wait.
    pub(crate) calm: bool,
    /// The store also returns grants that no correct store would return.
    pub(crate) nonsense: bool,
    pub(crate) losses: Vec<Loss>,
    /// When all faults end: from then on, the store answers, and no process is paused.
    pub(crate) heals: Option<Duration>,
}

/// The store loses committed data, either all of it or everything since a backup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) backup: Option<Duration>,
    /// Time from backup to loss.
    pub(crate) after: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct SequencePlan {
    pub(crate) name: String,
    pub(crate) order: Order,
    pub(crate) sizing: Sizing,
    pub(crate) start: u64,
    pub(crate) max: u64,
    pub(crate) timeout: Duration,
    pub(crate) block: u64,
    /// When an administrator resets this sequence.
    pub(crate) resets: Vec<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizing {
    Fixed { step: u64, watermark: u64 },
    Adaptive { max_buffered: u64, outage_budget: Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) seed: u64,
    pub(crate) callers: usize,
    pub(crate) ops: usize,
    pub(crate) think: Duration,
    pub(crate) store_timeout: Duration,
    pub(crate) max_waiting: usize,
    /// The maximum duration of each life but the last, which lasts until its callers are done.
    pub(crate) crashes: Vec<Duration>,
    /// When the process is paused, and for how long.
    pub(crate) pauses: Vec<(Duration, Duration)>,
    pub(crate) closes: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) faults: Faults,
    /// The latency after all faults, short enough for every process's timeout.
    pub(crate) healed: Duration,
    pub(crate) outages: Vec<(Duration, Duration)>,
}

fn millis(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(0..100) < percent
}

fn some<T>(rng: &mut Rng, percent: u32, most: usize, mut make: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    let count = if chance(rng, percent) { rng.usize(1..=most) } else { 0 };
    (0..count).map(|_| make(rng)).collect()
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        if rng.u32(0..10) == 0 {
            return Self::calm(seed, &mut rng);
        }
        let sequences = (0..rng.usize(1..=3)).map(|n| sequence(&mut rng, n)).collect();
        let processes: Vec<_> = (0..rng.usize(1..=4)).map(|_| process(&mut rng)).collect();
        // Only a single process without crashes can detect `Repeat`: a repeated grant may belong to another
        // life.
        let alone = processes.len() == 1 && processes[0].crashes.is_empty();
        let (weather, nonsense) = weather(&mut rng, alone);
        // Draw the losses last, so that they do not change the rest of the plan.
        let lossy = if nonsense { 0 } else { 20 };
        let losses = some(&mut rng, lossy, 3, |rng| Loss {
            backup: chance(rng, 70).then(|| millis(rng, 0..1000)),
            after: millis(rng, 0..1000),
        });
        let heals = (losses.is_empty() && chance(&mut rng, 50)).then(|| millis(&mut rng, 1..3000));
        let bug = Bug::None;
        let mut plan = Self { bug, sequences, processes, weather, calm: false, nonsense, losses, heals };
        if let Some(at) = heals {
            plan.end_faults(at);
        }
        plan
    }

    /// Ends outages and pauses at this time.
    fn end_faults(&mut self, heals: Duration) {
        let pauses = self.processes.iter_mut().map(|process| &mut process.pauses);
        for faults in pauses.chain([&mut self.weather.outages]) {
            faults.retain(|(at, _)| *at < heals);
            for (at, lasts) in faults {
                *lasts = (*lasts).min(heals.saturating_sub(*at));
            }
        }
        let shortest = self.processes.iter().map(|process| process.store_timeout).min().expect("a process");
        self.weather.healed = (shortest / 4).min(Duration::from_millis(50));
    }

    fn calm(seed: u64, rng: &mut Rng) -> Self {
        let (latency, callers, think) = (rng.u64(1..50), rng.usize(1..4), rng.u64(1..10));
        let watermark = (latency / think + 2) * callers as u64;
        let sizing = Sizing::Fixed { step: watermark + rng.u64(0..100), watermark };
        let timeout = Duration::from_secs(1);
        let sequence = SequencePlan {
            name: "calm".to_owned(),
            order: Order::Process,
            sizing,
            start: 1,
            max: u64::MAX,
            timeout,
            block: 1,
            resets: Vec::new(),
        };
        let process = ProcessPlan {
            callers,
            think: Duration::from_millis(think),
            crashes: Vec::new(),
            pauses: Vec::new(),
            closes: None,
            max_waiting: 1000,
            store_timeout: Duration::from_secs(10),
            ..process(rng)
        };
        let faults =
            Faults::none().latency_between(Duration::ZERO, Duration::from_millis(latency)).seed(seed);
        let weather = Weather { faults, healed: Duration::ZERO, outages: Vec::new() };
        Self {
            bug: Bug::None,
            sequences: vec![sequence],
            processes: vec![process],
            weather,
            calm: true,
            nonsense: false,
            losses: Vec::new(),
            heals: None,
        }
    }
}

fn sequence(rng: &mut Rng, number: usize) -> SequencePlan {
    let order = [Order::Global, Order::Process, Order::Process, Order::Thread][rng.usize(0..4)];
    let start = [0, 1, 1, 1000, u64::MAX - 5000][rng.usize(0..5)];
    let max = if chance(rng, 35) { start + rng.u64(0..2000) } else { u64::MAX };
    let step = if chance(rng, 50) { rng.u64(1..20) } else { rng.u64(1..500) };
    let sizing = if chance(rng, 70) {
        let watermark = if chance(rng, 30) { 0 } else { rng.u64(0..=step) };
        Sizing::Fixed { step, watermark }
    } else {
        Sizing::Adaptive { max_buffered: rng.u64(1..2000), outage_budget: millis(rng, 0..2000) }
    };
    SequencePlan {
        name: format!("s{number}"),
        order,
        sizing,
        start,
        max,
        timeout: millis(rng, 20..5000),
        block: rng.u64(1..20),
        resets: some(rng, 15, 3, |rng| millis(rng, 0..2000)),
    }
}

fn process(rng: &mut Rng) -> ProcessPlan {
    ProcessPlan {
        seed: rng.u64(..),
        callers: rng.usize(1..=5),
        ops: rng.usize(5..60),
        think: millis(rng, 0..40),
        store_timeout: [20, 200, 2000, 60_000].map(Duration::from_millis)[rng.usize(0..4)],
        max_waiting: if chance(rng, 10) { rng.usize(1..3) } else { 1000 },
        crashes: some(rng, 40, 4, |rng| millis(rng, 0..1000)),
        pauses: some(rng, 25, 3, |rng| (millis(rng, 0..1000), millis(rng, 1..3000))),
        closes: chance(rng, 40).then(|| millis(rng, 0..1500)),
    }
}

fn weather(rng: &mut Rng, alone: bool) -> (Weather, bool) {
    let mut faults = Faults::none().seed(rng.u64(..));
    if chance(rng, 85) {
        faults = faults.latency_between(millis(rng, 0..5), millis(rng, 5..100));
    }
    let honest = [
        Fault::LostRequest,
        Fault::LostReply,
        Fault::Hang,
        Fault::HangBefore,
        Fault::Refuse(ErrorKind::Denied),
        Fault::Latency(Duration::from_secs(3)),
    ];
    let mad = [Fault::TooMany, Fault::OutOfBounds, Fault::Empty, Fault::Repeat];
    for fault in some(rng, 60, 3, |rng| honest[rng.usize(0..honest.len())]) {
        faults = faults.random(fault, f64::from(rng.u32(1..25)) / 100.0);
    }
    let nonsense = chance(rng, 15);
    if nonsense {
        let kinds = if alone { mad.len() } else { mad.len() - 1 };
        faults = faults.random(mad[rng.usize(0..kinds)], 0.1);
    }
    let outages = some(rng, 20, 2, |rng| (millis(rng, 0..1000), millis(rng, 1..4000)));
    (Weather { faults, healed: Duration::ZERO, outages }, nonsense)
}
