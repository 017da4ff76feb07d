//! Many processes over a store and a witness that may be restored to earlier states, on a simulated clock: no
//! id is a duplicate, unless both store and witness have lost that id.
//!
//! This test runs a twentieth of the number of worlds in `IDMILL_SIM_SEEDS`. `IDMILL_SIM_SEED` runs only the
//! world of that seed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::{join, join_all};
use idmill::store::{Bounds, Change, Page, Snapshot, Store, StoreFuture};
use idmill::{ErrorKind, Order, Result, SequenceName, Sequences};
use idmill_guard::{Guarded, Ledger, Ledgers, MemoryWitness, Witness};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use idmill_testing::seeds;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

const DEFAULT_SEEDS: u64 = 200;
const HOUR: Duration = Duration::from_secs(3600);
/// The duration of a world.
const LASTS: Duration = Duration::from_secs(3600 * 12);

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// Nothing is claimed.
    Unguarded,
    /// The witness confirms writes that it has not kept.
    ForgetfulWitness,
}

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    processes: usize,
    faults: Faults,
    /// The percentage of calls to the witness whose request or reply is lost.
    witness_faults: u32,
    witness_goes_back: bool,
    is_administered: bool,
    is_removed: bool,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut faults = Faults::none().seed(rng.u64(..));
        faults = faults.latency_between(Duration::ZERO, Duration::from_millis(rng.u64(1..200)));
        if rng.bool() {
            faults = faults.random(Fault::LostReply, 0.1).random(Fault::LostRequest, 0.1);
        }
        let witness_faults = if rng.bool() { rng.u32(1..20) } else { 0 };
        let (processes, witness_goes_back) = (rng.usize(1..=40), rng.bool());
        let (is_administered, is_removed) = (rng.bool(), rng.bool());
        Self { seed, processes, faults, witness_faults, witness_goes_back, is_administered, is_removed }
    }
}

/// The ids handed out, and the ids that the witness may have lost.
#[derive(Debug, Default)]
struct Books {
    drawn: HashMap<u64, usize>,
    twice: Vec<u64>,
    /// Ids that may have been claimed after the backups that the witness returned to.
    forgotten: Vec<Range<u128>>,
}

impl Books {
    fn note(&mut self, id: u64, process: usize) {
        let is_known = !self.forgotten.iter().any(|range| range.contains(&id.into()));
        if self.drawn.insert(id, process).is_some() && is_known {
            self.twice.push(id);
        }
    }
}

struct World {
    plan: Plan,
    bug: Bug,
    store: FaultyStore,
    witness: MemoryWitness,
    books: Mutex<Books>,
    healed: Mutex<u64>,
}

/// A witness that may lose the request or the reply of a call.
#[derive(Debug)]
struct Flaky {
    witness: MemoryWitness,
    percent: u32,
    forgets: bool,
    rng: Mutex<Rng>,
}

impl Flaky {
    async fn is_lost(&self) -> bool {
        let (pause, lost) = {
            let mut rng = self.rng.lock();
            (rng.u64(0..100), rng.u32(0..100) < self.percent)
        };
        sleep(Duration::from_millis(pause)).await;
        lost
    }
}

impl Witness for Flaky {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        Box::pin(async move {
            if self.is_lost().await {
                return Err(ErrorKind::Unavailable.into());
            }
            self.witness.read(name).await
        })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            if self.is_lost().await {
                return Err(ErrorKind::UnknownOutcome.into());
            }
            let written = if self.forgets { Ok(true) } else { self.witness.swap(name, seen, wanted).await };
            if self.is_lost().await { Err(ErrorKind::UnknownOutcome.into()) } else { written }
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        self.witness.list(page)
    }
}

fn name() -> SequenceName {
    SequenceName::new("s").expect("a name")
}

impl World {
    async fn run(&self) {
        self.store.create(&name(), Bounds::of::<u64>()).await.expect("no faults yet");
        self.store.set_faults(self.plan.faults.clone());
        let mut rng = Rng::with_seed(self.plan.seed);
        let processes = (0..self.plan.processes).map(|process| self.process(process, rng.fork()));
        let processes = join_all(processes.collect::<Vec<_>>());
        let _ = timeout(LASTS, join(processes, self.befalls(rng.fork()))).await;
    }

    /// One process: it crashes now and then, and is restarted.
    async fn process(&self, process: usize, mut rng: Rng) {
        loop {
            let life = Duration::from_secs(rng.u64(60..20_000));
            let _ = timeout(life, self.life(process, rng.fork())).await;
        }
    }

    fn flaky(&self, rng: &mut Rng) -> Flaky {
        Flaky {
            witness: self.witness.clone(),
            percent: self.plan.witness_faults,
            forgets: self.bug == Bug::ForgetfulWitness,
            rng: Mutex::new(rng.fork()),
        }
    }

    async fn life(&self, process: usize, mut rng: Rng) {
        let guarded = Arc::new(Guarded::new(self.store.clone(), Arc::new(self.flaky(&mut rng))));
        let store: Arc<dyn Store> =
            if self.bug == Bug::Unguarded { Arc::new(self.store.clone()) } else { guarded.clone() };
        let ids = Sequences::builder(store).seed(rng.u64(..)).start().expect("a runtime");
        let order = [Order::Process, Order::Process, Order::Thread, Order::Global][rng.usize(0..4)];
        let step = rng.u64(1..50);
        let allocator = ids.sequence::<u64>("s").order(order).step(step).watermark(rng.u64(0..=step)).lazy();
        let (allocator, think) = (allocator.expect("valid"), rng.u64(10..300));
        let _counted = Counted(&guarded, &self.healed);
        loop {
            sleep(Duration::from_secs(rng.u64(1..think))).await;
            if let Ok(id) = allocator.next().await {
                self.books.lock().note(id, process);
            }
        }
    }

    /// An administrator may change the sequence once, through the guard or directly. No such change permits
    /// duplicates.
    async fn is_administered(&self, rng: &mut Rng) {
        let guarded = Guarded::new(self.store.clone(), Arc::new(self.flaky(rng)));
        let revoke = Change::new().revoke(true);
        // Each of these calls may fail, or have an unknown outcome.
        match rng.u32(0..5) {
            0 => drop(guarded.set(&name(), revoke).await),
            1 => drop(self.store.set(&name(), revoke).await),
            2 => drop(self.store.set(&name(), Change::new().next(1).backwards(true)).await),
            _ if !self.plan.is_removed => {}
            _ => {
                let _ = guarded.remove(&name(), None).await;
                sleep(Duration::from_secs(rng.u64(0..100))).await;
                let _ = self.store.create(&name(), Bounds::of::<u64>()).await;
            }
        }
    }

    /// Within every two hours, the store or the witness may go back to an earlier moment.
    async fn befalls(&self, mut rng: Rng) {
        let mut backups: Vec<(Snapshot, Option<Ledger>)> = Vec::new();
        loop {
            sleep(HOUR.mul_f64(rng.f64() * 2.0)).await;
            if self.plan.is_administered {
                self.is_administered(&mut rng).await;
            }
            backups.push((self.store.snapshot(), self.witness.ledger("s")));
            let (store, ledger) = backups[rng.usize(0..backups.len())].clone();
            if self.plan.witness_goes_back && rng.u32(0..3) == 0 {
                let known = ledger.as_ref().map_or(0, |ledger| ledger.floor);
                let claimed = self.witness.ledger("s").map_or(0, |ledger| ledger.top());
                self.books.lock().forgotten.push(known..claimed);
                self.witness.set_ledger(&name(), ledger);
            } else if rng.bool() {
                self.store.restore(&store);
            }
        }
    }
}

/// Counts the repairs of a life, even if it ends by a crash.
struct Counted<'a>(&'a Guarded, &'a Mutex<u64>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *self.1.lock() += self.0.healed();
    }
}

struct Outcome {
    drawn: usize,
    forgotten: usize,
    healed: u64,
}

fn run(seed: u64, bug: Bug) -> Result<Outcome, String> {
    seeds::run("--test simulation_guard", seed, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let world = World {
            plan: Plan::of(seed),
            bug,
            store: FaultyStore::new(),
            witness: MemoryWitness::new(),
            books: Mutex::default(),
            healed: Mutex::default(),
        };
        runtime.expect("a runtime").block_on(world.run());
        let books = world.books.into_inner();
        let healed = world.healed.into_inner();
        if let Some(id) = books.twice.first() {
            return Err(format!("id {id} was handed out twice, as were {} in all", books.twice.len()));
        }
        Ok(Outcome { drawn: books.drawn.len(), forgotten: books.forgotten.len(), healed })
    })
}

#[test]
fn every_promise_holds_in_every_world() {
    let seeds = seeds::chosen(DEFAULT_SEEDS, 20);
    let worlds = seeds::all_hold(seeds::run_all(&seeds, |seed| run(seed, Bug::None)));
    let sum = |what: fn(&Outcome) -> u64| worlds.iter().map(what).sum::<u64>();
    let (drawn, healed) = (sum(|world| world.drawn as u64), sum(|world| world.healed));
    let forgotten = sum(|world| world.forgotten as u64);
    println!(
        "{} worlds: {drawn} ids, {healed} times healed, the witness went back {forgotten} times",
        worlds.len()
    );
    if seeds.len() > 1 {
        assert!(healed > 0 && forgotten > 0 && drawn > 1000, "nothing ever befell the store or the witness");
    }
}

#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::Unguarded, Bug::ForgetfulWitness] {
        seeds::must_find(&bug, "twice", 20, |seed| run(seed, bug));
    }
}
