//! The world of one seed: processes over one window, its store, and all faults.

use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::{join, join_all};
use idmill::store::{Bounds, Reserve, Store};
use idmill::{IdRange, SequenceName, Status};
use idmill_memcached::{MemcachedOptions, MemcachedWindow};
use idmill_shared_cache::Tiered;
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::network::Network;
use crate::plan::{Plan, ProcessPlan};
use crate::server::{Lie, Server};

/// Longer than any run: a process that is not done by then hangs.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);
/// Longer than any delay, and than the life of any stub.
const SETTLED: Duration = Duration::from_secs(120);
/// A caller's timeout for a reserve. The engine's default is 10 s.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) type Tier = Tiered<Arc<dyn Store>, MemcachedWindow>;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) store: FaultyStore,
    pub(crate) network: Network,
    pub(crate) history: Mutex<History>,
    pub(crate) hung: bool,
    began: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    /// Counts events: an event that began after another ended has a larger number.
    clock: u64,
    pub(crate) draws: Vec<Draw>,
    /// Ranges that were reserved without the window.
    pub(crate) strangers: Vec<IdRange>,
    /// The tier of each life of each process, including crashed lives.
    pub(crate) tiers: Vec<Arc<Tier>>,
    /// Errors that no caller should get.
    pub(crate) wrong: Vec<String>,
    /// For each process, after the faults have ended: the duration of its last call.
    pub(crate) last: Vec<Option<Duration>>,
}

/// A call that got ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    pub(crate) range: IdRange,
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// The counts of events in a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) draws: u64,
    pub(crate) ids: u64,
    pub(crate) lives: u64,
    pub(crate) misses: u64,
    pub(crate) skipped: u64,
    pub(crate) restarts: u64,
    pub(crate) ahead: u64,
    pub(crate) abandoned: u64,
    pub(crate) uncertain: u64,
}

impl Add for Counted {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            draws: self.draws + other.draws,
            ids: self.ids + other.ids,
            lives: self.lives + other.lives,
            misses: self.misses + other.misses,
            skipped: self.skipped + other.skipped,
            restarts: self.restarts + other.restarts,
            ahead: self.ahead + other.ahead,
            abandoned: self.abandoned + other.abandoned,
            uncertain: self.uncertain + other.uncertain,
        }
    }
}

pub(crate) fn name() -> SequenceName {
    SequenceName::new("ids").expect("a name")
}

fn request(count: u64) -> Reserve {
    Reserve::new(name(), count).create(Bounds::of::<u64>())
}

/// Runs a plan to its end, on its own clock.
pub(crate) fn run(plan: Plan) -> World {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let network = Network::to(Server::new(plan.lie, plan.seed), plan.weather, plan.seed);
        let store = FaultyStore::with_faults(faults(&plan)).recording();
        let history = Mutex::default();
        let mut world = World { plan, store, network, history, hung: false, began: Instant::now() };
        let processes = join_all(world.plan.processes.iter().map(|process| world.process(process)));
        let all = join(processes, world.befalls());
        world.hung = timeout(FOR_EVER, all).await.is_err();
        world
    })
}

fn faults(plan: &Plan) -> Faults {
    let faults = Faults::none().latency_between(plan.store.shortest, plan.store.longest).seed(plan.seed);
    let lost = [Fault::LostRequest, Fault::LostReply, Fault::Hang, Fault::HangBefore];
    lost.into_iter().fold(faults, |faults, fault| faults.random(fault, plan.store.lost))
}

impl World {
    async fn befalls(&self) {
        let evictions = self.plan.evictions.iter().map(|at| async {
            sleep_until(self.began + *at).await;
            self.network.server.lock().forget();
        });
        let restarts = self.plan.restarts.iter().map(|(at, away)| async {
            sleep_until(self.began + *at).await;
            self.network.restart(*away).await;
        });
        let strangers = self.plan.strangers.iter().map(|(at, count)| async {
            sleep_until(self.began + *at).await;
            if let Ok(Ok(grant)) = timeout(TIMEOUT, self.store.reserve(&request(*count))).await {
                self.history.lock().strangers.push(grant.range);
            }
        });
        join(join(join_all(evictions), join_all(restarts)), join_all(strangers)).await;
        sleep_until(self.began + self.plan.lasts).await;
        self.network.calm();
        self.store.set_faults(Faults::none().latency(Duration::from_millis(5)));
    }

    /// The lives of one process, one after the other.
    async fn process(&self, plan: &ProcessPlan) {
        let mut rng = Rng::with_seed(plan.seed);
        for crash in &plan.crashes {
            // Dropping the life is the crash: everything in flight ends there.
            let _ = timeout(*crash, self.life(plan, rng.fork())).await;
        }
        self.life(plan, rng.fork()).await;
    }

    async fn life(&self, plan: &ProcessPlan, mut rng: Rng) {
        let tier = Arc::new(self.tier());
        self.history.lock().tiers.push(tier.clone());
        join_all((0..plan.callers).map(|_| self.calls(plan, &tier, rng.fork()))).await;
        sleep_until(self.began + self.plan.lasts + SETTLED).await;
        let began = Instant::now();
        let served = self.call(&tier, 1).await;
        self.history.lock().last.push(served.then(|| began.elapsed()));
    }

    fn tier(&self) -> Tier {
        let plan = &self.plan;
        let max_skip = if plan.lie == Lie::NeverMindTheRate { None } else { plan.max_skip };
        let options = MemcachedOptions::new("simulated:1").block(plan.block).max_skip(max_skip);
        let options = options.stub(plan.stub).timeout(plan.timeout);
        let window = MemcachedWindow::over(options, Arc::new(self.network.clone())).expect("options");
        Tiered::new(Arc::new(self.store.clone()) as Arc<dyn Store>, window)
    }

    async fn calls(&self, plan: &ProcessPlan, tier: &Tier, mut rng: Rng) {
        while self.began.elapsed() < self.plan.lasts {
            sleep(plan.think.mul_f64(1.0 + rng.f64() / 2.0)).await;
            self.call(tier, rng.u64(1..=plan.count)).await;
        }
    }

    /// Makes one reserve, and returns whether it got ids.
    async fn call(&self, tier: &Tier, count: u64) -> bool {
        let began = self.tick();
        let outcome = timeout(TIMEOUT, tier.reserve(&request(count))).await;
        let ended = self.tick();
        let mut history = self.history.lock();
        match outcome {
            Ok(Ok(grant)) => {
                history.draws.push(Draw { range: grant.range, began, ended });
                return true;
            }
            Ok(Err(error)) if error.status() == Status::Permanent => history.wrong.push(error.to_string()),
            Ok(Err(_)) | Err(_) => {}
        }
        false
    }

    fn tick(&self) -> u64 {
        let mut history = self.history.lock();
        history.clock += 1;
        history.clock
    }

    pub(crate) fn counted(&self, history: &History) -> Counted {
        let server = self.network.server.lock();
        let tiers = || history.tiers.iter();
        Counted {
            draws: history.draws.len() as u64,
            ids: history.draws.iter().map(|draw| draw.range.len()).sum(),
            lives: history.tiers.len() as u64,
            misses: server.misses.len() as u64,
            skipped: server.misses.iter().map(|miss| miss.skipped).sum(),
            restarts: self.plan.restarts.len() as u64,
            ahead: tiers().map(|tier| tier.window().stats().ahead).sum(),
            abandoned: tiers().map(|tier| tier.abandoned() + tier.window().stats().abandoned).sum(),
            uncertain: tiers().map(|tier| tier.uncertain() + tier.window().stats().uncertain).sum(),
        }
    }
}
