//! Tail latency over a real SQLite file, which a wrapper slows down.
//!
//! The tests count waits, and the counts must not depend on the load of the machine. In the first
//! two tests the time is simulated, and stops while SQLite works: a reserve takes the wrapper's
//! delay, but the file is really written. The other tests use real threads and real time, but do
//! not assert on time: the wrapper holds the store's answers until the test releases them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use idmill::store::{Grant, Reserve, Store, StoreFuture};
use idmill::{Allocator, ErrorKind, Result, SequenceBuilder, Sequences};
use idmill_sqlite::SqliteStore;
use idmill_testing::hooked::{Hooked, Hooks};
use idmill_testing::load::{AFTER, CALLERS, SETTLED, Seen, load};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::sleep;

const LATENCY: Duration = Duration::from_millis(10);
const RATES: [f64; 2] = [100.0, 10_000.0];
/// The timeout of any wait, on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A store that slows down its reserves and counts them.
#[derive(Clone, Debug)]
struct Slow {
    store: SqliteStore,
    latency: watch::Sender<Duration>,
    /// Whether the answers of executed reserves are held.
    held: watch::Sender<bool>,
    reserves: Arc<AtomicU64>,
}

impl Slow {
    async fn open(dir: &TempDir, latency: Duration) -> Self {
        let store = SqliteStore::open(dir.path().join("ids.db")).await.unwrap();
        let (latency, held) = (watch::Sender::new(latency), watch::Sender::new(false));
        Self { store, latency, held, reserves: Arc::default() }
    }

    fn reserves(&self) -> u64 {
        self.reserves.load(Ordering::SeqCst)
    }

    async fn reserve_slowly(&self, request: &Reserve) -> Result<Grant> {
        let latency = *self.latency.borrow();
        self.reserves.fetch_add(1, Ordering::SeqCst);
        sleep(latency / 2).await;
        let grant = self.store.reserve(request).await;
        sleep(latency / 2).await;
        self.held.subscribe().wait_for(|held| !held).await.expect("the sender is in self");
        grant
    }
}

impl Hooks for Slow {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(self.reserve_slowly(request))
    }
}

/// One process with its own database file.
struct World {
    store: Slow,
    ids: Allocator<u64>,
    sequences: Sequences,
    _dir: TempDir,
}

impl World {
    async fn new(
        latency: Duration,
        settings: impl FnOnce(SequenceBuilder<u64>) -> SequenceBuilder<u64>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Slow::open(&dir, latency).await;
        let shared = Arc::new(Hooked(store.clone())) as Arc<dyn Store>;
        let sequences = Sequences::builder(shared).seed(1).start().unwrap();
        let ids = settings(sequences.sequence::<u64>("s").timeout(TIMEOUT)).await.unwrap();
        Self { store, ids, sequences, _dir: dir }
    }

    fn waits(&self) -> u64 {
        self.ids.snapshot().waits
    }

    /// Like [`load`](load()), but also returns the allocator's count of waits.
    async fn load(&self, time: Duration, rate: f64) -> (Seen, u64) {
        let before = self.waits();
        let seen = load(&self.ids, time, move |_| rate).await;
        (seen, self.waits() - before)
    }

    /// Holds all later answers.
    fn hold(&self) {
        self.store.held.send_replace(true);
    }

    fn release(&self) {
        self.store.held.send_replace(false);
    }

    /// Returns the number of reserves after no more are possible.
    async fn reserves_in_all(&self) -> u64 {
        self.sequences.close().await;
        self.store.reserves()
    }
}

/// Waits for a change by other threads.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "timed out: {what}");
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tenfold_load_costs_at_most_one_wait_none_with_budget() {
    for rate in RATES {
        for (budget, most) in [(Duration::ZERO, 1), (Duration::from_secs(5), 0)] {
            let world = World::new(LATENCY, |s| s.outage_budget(budget).max_buffered(1 << 40)).await;
            world.ids.warm(1).await.unwrap();
            world.load(SETTLED, rate).await;
            let (seen, counted) = world.load(AFTER, 10.0 * rate).await;
            assert!(seen.most() <= most, "{rate}/s with {budget:?}: {seen:?}");
            assert!(counted <= u64::from(most * CALLERS), "{rate}/s with {budget:?}: {counted}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slowdown_within_the_outage_budget_makes_no_call_wait() {
    for rate in RATES {
        let world = World::new(LATENCY, |s| s.outage_budget(20 * LATENCY).max_buffered(1 << 40)).await;
        world.ids.warm(1).await.unwrap();
        world.load(SETTLED, rate).await;
        world.store.latency.send_replace(20 * LATENCY);
        let before = world.store.reserves();
        let (seen, counted) = world.load(AFTER + 40 * LATENCY, rate).await;
        assert_eq!((seen.most(), counted), (0, 0), "{rate}/s: {seen:?}");
        assert!(world.store.reserves() - before > 2, "too few reserves at the slow store, after {before}");
    }
}

/// On real threads: while the reserve that the watermark triggered is pending, the ids below the
/// watermark are available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_below_the_watermark_are_drawn_during_a_reserve() {
    const STEP: u64 = 1_000;
    const WATERMARK: u64 = 401;
    let world = World::new(LATENCY, |s| s.step(STEP).watermark(WATERMARK)).await;
    world.ids.warm(1).await.unwrap();
    let before = world.waits();
    world.hold();
    // The last of these draws crosses the watermark.
    draw_on_threads(&world.ids, 1, STEP - WATERMARK + 1);
    until("a reserve is under way", || world.store.reserves() == 2).await;
    draw_on_threads(&world.ids, 4, WATERMARK - 1);
    assert_eq!((world.waits() - before, world.store.reserves()), (0, 2));
    // All ids of the first step were drawn.
    assert_eq!(world.ids.try_next().unwrap_err().kind(), ErrorKind::Empty);
    world.release();
    assert_eq!(world.ids.next().await.unwrap(), STEP + 1);
    assert_eq!(world.reserves_in_all().await, 2);
}

/// Draws `count` ids in all, on `threads` threads; panics if no id is in memory.
fn draw_on_threads(ids: &Allocator<u64>, threads: u64, count: u64) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut handle = ids.handle();
                for _ in 0..count / threads {
                    handle.try_next().unwrap();
                }
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_callers_without_cached_ids_share_one_reserve() {
    const CROWD: u64 = 100;
    for step in [CROWD, 1_000] {
        let world = World::new(LATENCY, |s| s.step(step).watermark(0)).await;
        world.hold();
        // The first reserve is held until all callers wait.
        let crowd: Vec<_> = (0..CROWD)
            .map(|_| {
                let ids = world.ids.clone();
                tokio::spawn(async move { ids.next().await.unwrap() })
            })
            .collect();
        until("all of them wait", || world.waits() == CROWD && world.store.reserves() > 0).await;
        world.release();
        let mut ids = Vec::new();
        for caller in crowd {
            ids.push(caller.await.unwrap());
        }
        ids.sort_unstable();
        assert!(ids.iter().copied().eq(1..=CROWD), "{ids:?}");
        assert_eq!(world.reserves_in_all().await, 1, "step {step}");
    }
}
