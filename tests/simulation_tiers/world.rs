//! The world of one seed: datacenters with processes, the rows that the processes share, and all faults.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::{join, join_all};
use idmill::store::{Bounds, Grant, Reserve, Store, StoreFuture};
use idmill::{Allocator, ErrorKind, Result, Sequences, Snapshot};
use idmill_shared_cache::Tiered;
use idmill_testing::hooked::{Hooked, Hooks};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cluster::{Cluster, Weather};
use crate::gate::Gate;
use crate::plan::{Plan, ProcessPlan};
use crate::window::{DatacenterWindow, Global, Place};

/// Longer than any run: a process that is not done by then hangs.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longer than any late request takes.
const SETTLED: Duration = Duration::from_secs(2 * 3600);
/// After the faults have ended, every process gets an id or `Exhausted` within this time.
const PROMPT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) cluster: Cluster,
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) hung: bool,
    began: Instant,
}

/// One call of one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) datacenter: usize,
    pub(crate) life: usize,
    pub(crate) began: Duration,
    pub(crate) took: Duration,
    pub(crate) outcome: Result<u64, ErrorKind>,
    /// Whether the datacenter had no ids left when the call returned.
    pub(crate) at_end: bool,
    /// Whether `last_call` made this call.
    pub(crate) last: bool,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) lives: usize,
    pub(crate) calls: Vec<Call>,
    /// Each grant, after its life.
    pub(crate) grants: Vec<(usize, Grant)>,
    /// The final snapshots of processes that lived to the end.
    pub(crate) left: Vec<(usize, Snapshot)>,
    /// When the datacenter was cut off, in a world with sized windows.
    pub(crate) cut_at: Option<Duration>,
}

/// Runs a plan to its end, on its own clock.
pub(crate) fn run(plan: Plan) -> World {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let bounds = Bounds::new(plan.start, plan.max).expect("bounds");
        let cluster = Cluster::new(plan.datacenters, bounds, plan.weather, plan.seed);
        let history = Arc::default();
        let mut world = World { plan, cluster, history, hung: false, began: Instant::now() };
        let processes = join_all(world.plan.processes.iter().map(|process| world.process(process)));
        let all = join(processes, world.befalls());
        world.hung = timeout(FOR_EVER, all).await.is_err();
        world
    })
}

impl World {
    async fn befalls(&self) {
        join_all(self.plan.isolations.iter().map(|isolation| async {
            sleep_until(self.began + isolation.at).await;
            self.cut_off(isolation.datacenter).await;
            sleep_until((self.began + self.plan.lasts).min(Instant::now() + isolation.lasts)).await;
            self.cluster.0.lock().cut_off[isolation.datacenter] = false;
        }))
        .await;
        sleep_until(self.began + self.plan.lasts).await;
        let mut rows = self.cluster.0.lock();
        rows.weather = Weather::default();
        rows.cut_off.fill(false);
    }

    async fn cut_off(&self, datacenter: usize) {
        if self.plan.sized_for.is_none() {
            self.cluster.0.lock().cut_off[datacenter] = true;
            return;
        }
        self.cluster.0.lock().cut_when_low = Some((datacenter, self.plan.threshold));
        while !self.cluster.0.lock().cut_off[datacenter] {
            sleep(Duration::from_secs(1)).await;
        }
        self.history.lock().cut_at = Some(self.began.elapsed());
    }

    /// The lives of one process, one after the other.
    async fn process(&self, plan: &ProcessPlan) {
        let gate = Gate::open();
        let mut rng = Rng::with_seed(plan.seed);
        let pauses = plan.pauses.iter().map(|(at, lasts)| {
            let gate = gate.clone();
            async move {
                sleep_until(self.began + *at).await;
                gate.shut_until((self.began + self.plan.lasts).min(Instant::now() + *lasts));
            }
        });
        let lives = async {
            for crash in &plan.crashes {
                // Dropping the life is the crash: its actor ends, with everything in flight.
                let _ = timeout(*crash, self.life(plan, &gate, rng.fork())).await;
            }
            self.life(plan, &gate, rng.fork()).await;
        };
        join(lives, join_all(pauses)).await;
    }

    async fn life(&self, plan: &ProcessPlan, gate: &Gate, mut rng: Rng) {
        let life = {
            let mut history = self.history.lock();
            history.lives += 1;
            history.lives
        };
        let place = Place {
            cluster: self.cluster.clone(),
            datacenter: plan.datacenter,
            gate: gate.clone(),
            range: self.plan.range,
            threshold: self.plan.threshold,
            bug: self.plan.bug,
        };
        let tiered = Tiered::new(Global(place.clone()), DatacenterWindow(place));
        let watched =
            Arc::new(Hooked(Watched { life, tiered, history: self.history.clone() })) as Arc<dyn Store>;
        let builder = Sequences::builder(watched).seed(rng.u64(..)).store_timeout(Duration::from_secs(60));
        let ids = builder.start().expect("a runtime is there");
        let sequence = ids.sequence::<u64>("ids").start(self.plan.start).max(self.plan.max);
        let sequence = sequence.step(plan.step).watermark(plan.step / 2).timeout(plan.timeout);
        let allocator = sequence.lazy().expect("settings");
        join_all((0..plan.callers).map(|_| self.calls(life, plan, gate, &allocator, rng.fork()))).await;
        sleep_until(self.began + self.plan.lasts + SETTLED).await;
        self.last_call(life, plan, &allocator).await;
        // Until the store's next answer, the engine keeps the ids of a caller that gave up.
        sleep(SETTLED).await;
        self.history.lock().left.push((life, allocator.snapshot()));
    }

    async fn calls(
        &self,
        life: usize,
        plan: &ProcessPlan,
        gate: &Gate,
        allocator: &Allocator<u64>,
        mut rng: Rng,
    ) {
        while self.began.elapsed() < self.plan.lasts {
            sleep(plan.think.mul_f64(1.0 + rng.f64() / 2.0)).await;
            gate.pass().await;
            self.call(life, plan, allocator, false).await;
        }
    }

    /// After the faults have ended, repeats a call that times out, for up to `PROMPT`.
    async fn last_call(&self, life: usize, plan: &ProcessPlan, allocator: &Allocator<u64>) {
        let until = Instant::now() + PROMPT;
        while self.call(life, plan, allocator, true).await == Some(ErrorKind::Deadline)
            && Instant::now() < until
        {}
    }

    async fn call(
        &self,
        life: usize,
        plan: &ProcessPlan,
        allocator: &Allocator<u64>,
        last: bool,
    ) -> Option<ErrorKind> {
        let began = Instant::now();
        let outcome = allocator.next().await.map_err(|error| error.kind());
        let datacenter = plan.datacenter;
        let call = Call {
            datacenter,
            life,
            began: began - self.began,
            took: began.elapsed(),
            outcome,
            at_end: self.cluster.0.lock().is_exhausted(datacenter),
            last,
        };
        self.history.lock().calls.push(call);
        outcome.err()
    }
}

/// A tier that records its grants.
#[derive(Debug)]
struct Watched {
    life: usize,
    tiered: Tiered<Global, DatacenterWindow>,
    history: Arc<Mutex<History>>,
}

impl Hooks for Watched {
    fn inner(&self) -> &dyn Store {
        &self.tiered
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let grant = self.tiered.reserve(request).await?;
            self.history.lock().grants.push((self.life, grant));
            Ok(grant)
        })
    }
}
