//! The world of one seed: processes, the store they share, and the faults of both.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::{join, join_all};
use idmill::store::{Change, Store};
use idmill::{Allocator, Result, SequenceName, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::hooked::Hooked;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::caller::Caller;
use crate::check::progress;
use crate::history::{History, Left, Shared};
use crate::plan::{Bug, Loss, Plan, ProcessPlan, SequencePlan, Sizing};
use crate::store::{Gate, Watched};

/// Longer than any run: a process that is not done by then hangs.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// How long patient callers continue to draw after every wait must be over.
const AFTERWARDS: Duration = Duration::from_secs(5);

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) store: FaultyStore,
    pub(crate) history: Shared,
    pub(crate) hung: bool,
    pub(crate) names: Arc<Vec<SequenceName>>,
}

/// Runs a plan to its end, on its own clock.
pub(crate) fn run(plan: Plan) -> World {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let name = |sequence: &SequencePlan| SequenceName::new(&sequence.name).expect("a name");
        let names = Arc::new(plan.sequences.iter().map(name).collect());
        let store = FaultyStore::with_faults(plan.weather.faults.clone()).recording();
        let mut world = World { plan, store, history: History::new(), hung: false, names };
        let processes = join_all(world.plan.processes.iter().map(|process| world.process(process)));
        let hung = timeout(FOR_EVER, join(processes, world.befalls())).await.is_err();
        world.hung = hung;
        world
    })
}

impl World {
    /// Outages, resets and losses.
    async fn befalls(&self) {
        let outages = self.plan.weather.outages.iter().map(|(at, lasts)| self.outage(*at, *lasts));
        let all = self.plan.sequences.iter().enumerate();
        let resets = all.flat_map(|(n, sequence)| sequence.resets.iter().map(move |at| self.reset(n, *at)));
        let losses = self.plan.losses.iter().map(|loss| self.loss(*loss));
        join(join(join_all(outages), join_all(resets)), join(join_all(losses), self.heals())).await;
    }

    async fn heals(&self) {
        if let Some(at) = self.plan.heals {
            sleep(at).await;
            self.store.set_faults(Faults::none().latency(self.plan.weather.healed));
        }
    }

    async fn loss(&self, Loss { backup, after }: Loss) {
        let mut kept = FaultyStore::new().snapshot();
        if let Some(backup) = backup {
            sleep(backup).await;
            kept = self.store.snapshot();
        }
        sleep(after).await;
        self.history.lock().tick(&"a loss");
        self.store.restore(&kept);
    }

    async fn outage(&self, at: Duration, lasts: Duration) {
        sleep(at).await;
        self.store.set_faults(Faults::outage());
        sleep(lasts).await;
        if self.plan.heals.is_none_or(|heals| self.history.lock().now() < heals) {
            self.store.set_faults(self.plan.weather.faults.clone());
        }
    }

    async fn reset(&self, sequence: usize, at: Duration) {
        sleep(at).await;
        let next = Some(self.plan.sequences[sequence].start);
        let change = Change::new().next(next).backwards(true);
        // The reset is recorded first, because the call may take effect before it returns.
        self.history.lock().reset(sequence);
        let _ = self.store.set(&self.names[sequence], change).await;
    }

    /// One process: it crashes as planned, and is restarted each time.
    async fn process(&self, plan: &ProcessPlan) {
        let mut rng = Rng::with_seed(plan.seed);
        let gate = Gate::open();
        let lives = async {
            for crash in &plan.crashes {
                // Dropping the life is the crash: its actor ends, with everything in flight.
                let _ = timeout(*crash, self.life(plan, &gate, rng.fork())).await;
            }
            self.life(plan, &gate, rng.fork()).await;
        };
        join(lives, join_all(plan.pauses.iter().map(|pause| pauses(&gate, *pause)))).await;
    }

    async fn life(&self, plan: &ProcessPlan, gate: &Gate, mut rng: Rng) {
        let life = {
            let mut history = self.history.lock();
            history.lives += 1;
            history.lives
        };
        let ids = self.sequences(life, plan, gate, rng.u64(..));
        let mut allocators = Vec::new();
        for sequence in &self.plan.sequences {
            let allocator = open(&ids, sequence).await.or_else(|_| prepared(&ids, sequence).lazy());
            allocators.push(allocator.expect("opens lazily, even in an outage"));
        }
        if self.plan.calm {
            allocators[0].warm(1).await.expect("a calm store");
        }
        let closes = async {
            if let Some(at) = plan.closes {
                sleep(at).await;
                ids.close().await;
            }
        };
        let patient = self.patient(life, plan, gate, &allocators);
        join(join(self.calls(life, plan, gate, &allocators, &mut rng), patient), closes).await;
        for (sequence, allocator) in allocators.iter().enumerate() {
            self.leave(life, sequence, allocator).await;
        }
    }

    fn sequences(&self, life: usize, plan: &ProcessPlan, gate: &Gate, seed: u64) -> Sequences {
        let (store, history) = (self.store.clone(), self.history.clone());
        let blocked = self.plan.heals.filter(|_| self.plan.bug == Bug::WorkerIsBlocked);
        let watched =
            Watched { life, store, history, gate: gate.clone(), names: self.names.clone(), blocked };
        let builder = Sequences::builder(Arc::new(Hooked(watched)) as Arc<dyn Store>).seed(seed);
        let builder = builder.store_timeout(plan.store_timeout).max_waiting(plan.max_waiting);
        builder.start().expect("a runtime is there")
    }

    async fn calls(
        &self,
        life: usize,
        plan: &ProcessPlan,
        gate: &Gate,
        allocators: &[Allocator<u64>],
        rng: &mut Rng,
    ) {
        let mut callers = Vec::new();
        for number in 0..plan.callers * allocators.len() {
            let sequence = number % allocators.len();
            let allocator = allocators[sequence].clone();
            let shared = (self.history.clone(), gate.clone());
            let place = (life, number, sequence);
            let mut caller =
                Caller::new(place, allocator, &self.plan.sequences[sequence], shared, rng.fork());
            (caller.think, caller.calm, caller.bug) = (plan.think, self.plan.calm, self.plan.bug);
            callers.push(caller.run(plan.ops));
        }
        join_all(callers).await;
    }

    /// In a world that heals, each sequence has a caller that waits as long as necessary.
    async fn patient(&self, life: usize, plan: &ProcessPlan, gate: &Gate, allocators: &[Allocator<u64>]) {
        let Some(heals) = self.plan.heals else { return };
        let patient = allocators.iter().enumerate().map(|(sequence, allocator)| {
            let place = (life, usize::MAX - sequence, sequence);
            let shared = (self.history.clone(), gate.clone());
            let plan = &self.plan.sequences[sequence];
            Caller::new(place, allocator.clone(), plan, shared, Rng::with_seed(0))
        });
        let end = heals + plan.store_timeout + progress::LONGEST_DELAY + AFTERWARDS;
        join_all(patient.map(|caller| caller.run_patiently(end))).await;
    }

    /// Waits until no call is in flight, so that the counters no longer change: after a caller gives up, the
    /// engine keeps its ids until the next reply of the store.
    async fn leave(&self, life: usize, sequence: usize, allocator: &Allocator<u64>) {
        sleep(Duration::from_secs(200)).await;
        let snapshot = allocator.snapshot();
        self.history.lock().left.push(Left { life, sequence, snapshot });
    }
}

async fn pauses(gate: &Gate, (at, lasts): (Duration, Duration)) {
    sleep_until(Instant::now() + at).await;
    gate.shut_until(Instant::now() + lasts);
}

fn prepared(ids: &Sequences, plan: &SequencePlan) -> idmill::SequenceBuilder<u64> {
    let builder = ids.sequence::<u64>(&plan.name).order(plan.order).start(plan.start).max(plan.max);
    let builder = builder.timeout(plan.timeout).block_size(plan.block);
    match plan.sizing {
        Sizing::Fixed { step, watermark } => builder.step(step).watermark(watermark),
        Sizing::Adaptive { max_buffered, outage_budget } => {
            builder.max_buffered(max_buffered).outage_budget(outage_budget)
        }
    }
}

/// Opening gives up after a while, because an unreachable store can hang.
async fn open(ids: &Sequences, plan: &SequencePlan) -> Result<Allocator<u64>> {
    let opening = timeout(Duration::from_secs(1), prepared(ids, plan).into_future());
    opening.await.unwrap_or_else(|_| Err(idmill::ErrorKind::Deadline.into()))
}
