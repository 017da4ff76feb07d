//! One process, whose sequences are drawn from all the time, and whose readiness is probed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use idmill::store::{Change, Grant, Reserve, Store, StoreFuture};
use idmill::{Allocator, Health, Result, SequenceName, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::hooked::{Hooked, Hooks};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use super::Bug;
use super::plan::{Event, Plan};

/// The timeout of draws.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The time between two probes.
const PROBES: Duration = Duration::from_millis(200);
/// How long a world continues after the event: longer than any delay between two attempts.
const AFTERWARDS: Duration = Duration::from_secs(20);
const FIRST: &str = "s0";

/// One draw: the number of its sequence, its times, and whether it got an id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) sequence: usize,
    pub(super) ended: Duration,
    pub(super) served: bool,
}

/// One report of readiness.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) at: Duration,
    pub(super) ready: bool,
    pub(super) text: String,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) draws: Vec<Draw>,
    pub(super) probes: Vec<Probe>,
}

/// A store that may answer no reserve of the first sequence.
#[derive(Debug, Default)]
struct Locking {
    store: FaultyStore,
    locked: AtomicBool,
}

impl Hooks for Locking {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            while self.locked.load(Ordering::Relaxed) && request.name.as_str() == FIRST {
                sleep(Duration::from_millis(1)).await;
            }
            self.store.reserve(request).await
        })
    }
}

struct World<'a> {
    plan: &'a Plan,
    bug: Bug,
    store: Arc<Hooked<Locking>>,
    began: Instant,
    seen: Mutex<Seen>,
}

pub(super) async fn run(plan: &Plan, bug: Bug) -> Seen {
    let store = Arc::new(Hooked(Locking::default()));
    let ids = Sequences::builder(store.clone()).seed(plan.seed).start().expect("a runtime");
    let mut opened = Vec::new();
    for (n, (step, watermark, _)) in plan.sequences.iter().enumerate() {
        let sequence = ids.sequence::<u64>(format!("s{n}")).step(*step).watermark(*watermark);
        opened.push(sequence.timeout(TIMEOUT).await.expect("no fault yet"));
    }
    let world = World { plan, bug, store, began: Instant::now(), seen: Mutex::default() };
    world.store.store.set_faults(world.healthy());
    let draws = join_all(opened.iter().enumerate().map(|(n, sequence)| world.draws(n, sequence)));
    join(join(draws, world.probes(&ids, &opened)), world.event()).await;
    world.seen.into_inner()
}

impl World<'_> {
    fn healthy(&self) -> Faults {
        Faults::none().latency(self.plan.latency)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn is_over(&self) -> bool {
        self.now() > self.plan.ends + AFTERWARDS
    }

    async fn draws(&self, sequence: usize, allocator: &Allocator<u64>) {
        let (.., pause) = self.plan.sequences[sequence];
        while !self.is_over() {
            let served = allocator.next().await.is_ok();
            self.seen.lock().draws.push(Draw { sequence, ended: self.now(), served });
            sleep(pause).await;
        }
    }

    async fn probes(&self, ids: &Sequences, opened: &[Allocator<u64>]) {
        let mut was_ready = true;
        while !self.is_over() {
            sleep(PROBES).await;
            let report = ids.health();
            let ready = match self.bug {
                Bug::None => report.is_ready(),
                Bug::WorstDecides => report.health >= Health::Failing,
                Bug::PendingIsHealthy => opened.iter().map(Allocator::snapshot).all(|one| {
                    let is_pending = one.in_flight.is_some();
                    is_pending || one.failures_in_a_row == 0
                }),
                Bug::NeverRecovers => report.is_ready() && was_ready,
            };
            was_ready = ready;
            let (at, text) = (self.now(), report.to_string());
            self.seen.lock().probes.push(Probe { at, ready, text });
        }
    }

    async fn event(&self) {
        let (store, first) = (&self.store.store, SequenceName::new(FIRST).expect("valid"));
        sleep_until(self.began + self.plan.begins).await;
        match self.plan.event {
            Event::Nothing => {}
            Event::Store(fault) => store.set_faults(self.healthy().always(fault)),
            Event::Failing(kind) => store.fail_sequence(FIRST, kind),
            Event::Locked => self.store.locked.store(true, Ordering::Relaxed),
            Event::Exhausted => {
                let info = store.inspect(&first).await.expect("a store").expect("it exists");
                let last = info.next.expect("not exhausted") - 1;
                let change = Change::new().max(last);
                store.set(&first, change).await.expect("a store");
            }
            Event::Removed => assert!(store.remove(&first, None).await.expect("a store")),
        }
        sleep_until(self.began + self.plan.ends).await;
        store.set_faults(self.healthy());
        store.heal_sequence(FIRST);
        self.store.locked.store(false, Ordering::Relaxed);
    }
}
