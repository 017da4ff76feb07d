//! The measured sources: ids without a store, ids from ranges that are prefetched, and a range behind a
//! mutex.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use idmill::store::{Bounds, Page, Reserve, Store, StoreFuture};
use idmill::{Allocator, SequenceName, Sequences};
use idmill_bench::{TIMEOUT, sequences, slow_store};
use idmill_guard::{Guarded, Ledger, Ledgers, MemoryWitness, Witness};
use idmill_testing::faulty::FaultyStore;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// A source of ids for several threads.
pub(crate) trait Contender: Sync {
    fn name(&self) -> String;

    /// Returns the draw function of one thread.
    fn drawer(&self) -> Box<dyn FnMut() + '_>;

    /// Reserves so far, and draws that waited for one.
    fn counts(&self) -> (u64, u64);
}

/// One counter in memory, on its own cache line, like the allocator's cursor.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Bare(AtomicU64);

impl Contender for Bare {
    fn name(&self) -> String {
        "no store: bare fetch_add".to_owned()
    }

    fn drawer(&self) -> Box<dyn FnMut() + '_> {
        Box::new(|| {
            black_box(self.0.fetch_add(1, Ordering::Relaxed));
        })
    }

    fn counts(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Prefetched ranges. Each thread draws through a handle.
pub(crate) struct Idmill {
    name: String,
    allocator: Allocator<u64>,
    /// The counts after the first draw, which fills memory.
    before: (u64, u64),
    _sequences: Sequences,
}

impl Idmill {
    /// A step so large that no refill happens during the measurement.
    pub(crate) fn without_refills() -> Self {
        Self::open("idmill, never refilled".to_owned(), Duration::ZERO, 1 << 44, 0)
    }

    pub(crate) fn new(latency: Duration, step: u64, watermark: u64) -> Self {
        let name = format!("idmill, watermark {watermark}");
        Self::open(name, latency, step, watermark)
    }

    /// Each range is claimed at a witness that is as slow as the store.
    pub(crate) fn guarded(latency: Duration, step: u64, watermark: u64) -> Self {
        let witness = Arc::new(SlowWitness { witness: MemoryWitness::new(), latency });
        let guarded = Guarded::new(slow_store(latency), witness);
        Self::over(guarded, format!("idmill, watermark {watermark}, guarded"), step, watermark)
    }

    fn open(name: String, latency: Duration, step: u64, watermark: u64) -> Self {
        Self::over(slow_store(latency), name, step, watermark)
    }

    fn over(store: impl Store + 'static, name: String, step: u64, watermark: u64) -> Self {
        let sequences = sequences(store);
        let sequence = sequences.sequence::<u64>("tails").step(step).watermark(watermark).timeout(TIMEOUT);
        let allocator = sequence.open_blocking().expect("the memory store opens");
        allocator.blocking().next().expect("the memory store grants");
        let mut it = Self { name, allocator, before: (0, 0), _sequences: sequences };
        it.before = it.counts();
        it
    }
}

/// A witness across a network.
#[derive(Debug)]
struct SlowWitness {
    witness: MemoryWitness,
    latency: Duration,
}

impl Witness for SlowWitness {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, idmill::Result<Option<Ledger>>> {
        Box::pin(async move {
            sleep(self.latency).await;
            self.witness.read(name).await
        })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, idmill::Result<bool>> {
        Box::pin(async move {
            sleep(self.latency).await;
            self.witness.swap(name, seen, wanted).await
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, idmill::Result<Ledgers>> {
        self.witness.list(page)
    }
}

impl Contender for Idmill {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn drawer(&self) -> Box<dyn FnMut() + '_> {
        let mut handle = self.allocator.handle();
        Box::new(move || {
            black_box(handle.blocking().next().expect("the memory store grants"));
        })
    }

    fn counts(&self) -> (u64, u64) {
        let seen = self.allocator.snapshot();
        (seen.reserves - self.before.0, seen.waits - self.before.1)
    }
}

/// The usual design of an allocator: a range behind a lock. The thread that finds the range empty fetches the
/// next range under the lock.
pub(crate) struct MutexAndFetch {
    /// The next id, and the end of the range (exclusive).
    range: Mutex<(u64, u64)>,
    store: Arc<FaultyStore>,
    request: Reserve,
    runtime: Runtime,
    fetching: AtomicBool,
    fetched: AtomicU64,
    waited: AtomicU64,
}

impl MutexAndFetch {
    pub(crate) fn new(latency: Duration, step: u64) -> Self {
        let name = SequenceName::new("tails").expect("a name");
        let create = Bounds::of::<u64>();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build();
        let it = Self {
            range: Mutex::new((0, 0)),
            store: Arc::new(slow_store(latency)),
            request: Reserve::new(name, step).ceiling(create.max()).create(create),
            runtime: runtime.expect("the runtime starts"),
            fetching: AtomicBool::new(false),
            fetched: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        };
        it.draw();
        it.fetched.store(0, Ordering::Relaxed);
        it.waited.store(0, Ordering::Relaxed);
        it
    }

    fn draw(&self) -> u64 {
        let mut range = self.range.try_lock().unwrap_or_else(|| {
            self.waited.fetch_add(u64::from(self.fetching.load(Ordering::Relaxed)), Ordering::Relaxed);
            self.range.lock()
        });
        if range.0 == range.1 {
            *range = self.fetch();
        }
        range.0 += 1;
        range.0 - 1
    }

    /// Called with the lock held.
    fn fetch(&self) -> (u64, u64) {
        self.fetching.store(true, Ordering::Relaxed);
        let grant = self.runtime.block_on(self.store.reserve(&self.request));
        self.fetching.store(false, Ordering::Relaxed);
        self.fetched.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(1, Ordering::Relaxed);
        let range = grant.expect("the memory store grants").range;
        (range.start(), range.start() + range.len())
    }
}

impl Contender for MutexAndFetch {
    fn name(&self) -> String {
        "mutex and fetch".to_owned()
    }

    fn drawer(&self) -> Box<dyn FnMut() + '_> {
        Box::new(|| {
            black_box(self.draw());
        })
    }

    fn counts(&self) -> (u64, u64) {
        (self.fetched.load(Ordering::Relaxed), self.waited.load(Ordering::Relaxed))
    }
}
