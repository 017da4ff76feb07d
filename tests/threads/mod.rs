//! Real threads over the real primitives, whose internals the model checker does not see. `stress.rs` runs
//! these tests under ThreadSanitizer, and `miri.rs` under Miri, each at its own scale.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use idmill::{Allocator, ErrorKind, Order, Sequences, SequencesBuilder};
use idmill_testing::faulty::{Faults, FaultyStore};

/// The size of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) threads: u64,
    /// Draws of each thread.
    pub(crate) draws: u64,
    /// Small, so that draws often move to the next segment.
    pub(crate) step: u64,
}

/// Longer than a test takes on the slowest machine: no test depends on speed.
const LONG: Duration = Duration::from_secs(3600);

/// Sequences on a runtime whose thread is joined at the end, so that nothing runs after a test.
struct Served {
    store: FaultyStore,
    ids: Sequences,
    stop: tokio::sync::oneshot::Sender<()>,
    runtime: thread::JoinHandle<()>,
}

fn serve(set: impl FnOnce(SequencesBuilder) -> SequencesBuilder + Send + 'static) -> Served {
    let store = FaultyStore::new().recording();
    let shared = store.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (sender, receiver) = std::sync::mpsc::channel();
    let runtime = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let builder = set(Sequences::builder(shared).store_timeout(LONG));
            sender.send(builder.start().unwrap()).unwrap();
            stopped.await.unwrap();
        });
    });
    Served { store, ids: receiver.recv().unwrap(), stop, runtime }
}

impl Served {
    fn open(&self, order: Order, scale: Scale) -> Allocator<u64> {
        let builder = self.ids.sequence::<u64>("s").order(order).step(scale.step).timeout(LONG);
        builder.block_size(3).lazy().unwrap()
    }

    fn end(self) {
        self.ids.blocking().close().unwrap();
        self.stop.send(()).unwrap();
        self.runtime.join().unwrap();
    }
}

/// Runs `work` on each thread. Fails if any id is returned more than once.
fn once<F>(threads: u64, work: F)
where
    F: Fn(u64) -> Vec<u64> + Send + Sync,
{
    let work = &work;
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        for (number, worker) in workers.into_iter().enumerate() {
            for id in worker.join().unwrap() {
                let other = all.insert(id, number as u64);
                assert_eq!(other, None, "id {id} was handed out twice");
            }
        }
    });
}

/// Checks that ids grow across threads: a thread that has seen an id gets larger ones.
struct Seen(AtomicU64);

impl Seen {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn draw(&self, draw: impl FnOnce() -> u64) -> u64 {
        // Acquire and Release: the draw of the id in `before` happens before this draw.
        let before = self.0.load(Ordering::Acquire);
        let id = draw();
        assert!(id > before, "{id} came after {before}");
        self.0.fetch_max(id, Ordering::Release);
        id
    }
}

/// Uses all ways to draw under [`Order::Process`], which promises growth across them.
pub(crate) fn every_way_grows_across_threads(scale: Scale) {
    let served = serve(|builder| builder);
    let (ids, seen) = (served.open(Order::Process, scale), Seen::new());
    once(scale.threads, |number| {
        let mut handle = ids.handle();
        let mut all = Vec::new();
        for round in 0..scale.draws {
            match (round + number) % 4 {
                0 => all.push(seen.draw(|| ids.blocking().next().unwrap())),
                1 | 2 => all.push(seen.draw(|| handle.blocking().next().unwrap())),
                _ => {
                    let mut taken = Vec::new();
                    seen.draw(|| {
                        taken.extend(ids.blocking().take(5).unwrap().iter());
                        taken[0]
                    });
                    all.extend(taken);
                }
            }
        }
        all
    });
    // Once the actor has ended, the counters no longer change and can be compared.
    served.ids.blocking().close().unwrap();
    let snapshot = ids.snapshot();
    let gaps = snapshot.gaps.total() - snapshot.gaps.unknown;
    assert_eq!(
        snapshot.drawn + snapshot.remaining + snapshot.given_back + gaps,
        snapshot.granted,
        "{snapshot:?}"
    );
    drop(ids);
    served.end();
}

/// Uses thread blocks and handles' blocks, whose ids grow within each of them.
pub(crate) fn thread_blocks_and_blocks_grow_for_each(scale: Scale) {
    let served = serve(|builder| builder);
    let ids = served.open(Order::Thread, scale);
    once(scale.threads, |_| {
        let mut block = ids.handle();
        let mut all = Vec::new();
        let (mut own, mut from_block) = (0, 0);
        for _ in 0..scale.draws {
            let id = ids.blocking().next().unwrap();
            assert!(id > own, "{id} came after {own} in one thread");
            own = id;
            let id = block.blocking().next().unwrap();
            assert!(id > from_block, "{id} came after {from_block} in one block");
            from_block = id;
            all.extend([own, from_block]);
        }
        all
    });
    drop(ids);
    served.end();
}

/// A revocation reaches segments, and the handles and blocks that other threads hold.
pub(crate) fn nothing_outlives_a_revocation(scale: Scale, order: Order) {
    let served = serve(|builder| builder);
    let (ids, store) = (served.open(order, scale), served.store.clone());
    // The largest id that was granted before the last revocation.
    let floor = AtomicU64::new(0);
    once(scale.threads, |number| {
        let mut all = Vec::new();
        let (mut handle, mut block) = (ids.handle(), ids.handle());
        for round in 0..scale.draws {
            if number == 0 && round % 4 == 3 {
                let granted = store.granted("s").last().and_then(|grant| grant.range.last());
                ids.discard();
                // Release pairs with the Acquire below: a thread that reads this floor draws after the
                // revocation.
                floor.fetch_max(granted.unwrap_or(0), Ordering::Release);
            }
            let before = floor.load(Ordering::Acquire);
            let id = match round % 3 {
                0 => ids.blocking().next().unwrap(),
                1 => block.blocking().next().unwrap(),
                _ => handle.blocking().next().unwrap(),
            };
            assert!(id > before, "{id} was handed out after all ids up to {before} were revoked");
            all.push(id);
        }
        all
    });
    drop(ids);
    served.end();
}

/// During a close, every thread gets ids until it gets `Closed`, and no caller waits forever.
pub(crate) fn close_reaches_every_thread(scale: Scale) {
    let served = serve(|builder| builder);
    let ids = served.open(Order::Process, scale);
    let drawn = AtomicU64::new(0);
    once(scale.threads, |number| {
        let mut all = Vec::new();
        loop {
            // Relaxed: the count only decides when to close.
            let count = drawn.fetch_add(1, Ordering::Relaxed);
            if number == 0 && count >= scale.draws {
                served.ids.blocking().close().unwrap();
            }
            match ids.blocking().next() {
                Ok(id) => all.push(id),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Closed);
                    return all;
                }
            }
        }
    });
    drop(ids);
    served.end();
}

/// Threads that open, use and drop the same sequence while it is evicted.
pub(crate) fn opened_and_evicted_at_once(scale: Scale) {
    let served = serve(|builder| builder.idle_eviction(Duration::from_nanos(1)));
    once(scale.threads, |_| {
        let open = || served.open(Order::Process, scale);
        (0..scale.draws).map(|_| open().blocking().next().unwrap()).collect()
    });
    served.end();
}

/// Takes race for the last ids, all in one range. The ids of a failed take stay for smaller draws.
pub(crate) fn takes_race_for_the_last_ids(scale: Scale) {
    let served = serve(|builder| builder);
    for round in 0..scale.draws {
        let last = 20 + round % 7;
        let builder = served.ids.sequence::<u64>(format!("s-{round}")).max(last).step(last).timeout(LONG);
        let ids = builder.watermark(0).lazy().unwrap();
        ids.blocking().warm(1).unwrap();
        let start = std::sync::Barrier::new(usize::try_from(scale.threads).unwrap());
        let drawn = AtomicU64::new(0);
        once(scale.threads, |number| {
            start.wait();
            let mut all = Vec::new();
            while let Ok(taken) = ids.blocking().take(5 + number % 3) {
                all.extend(taken.iter());
            }
            start.wait();
            while let Ok(id) = ids.blocking().next() {
                all.push(id);
            }
            drawn.fetch_add(all.len() as u64, Ordering::Relaxed);
            all
        });
        assert_eq!((drawn.into_inner(), ids.snapshot().gaps.total()), (last, 0));
    }
    served.end();
}

/// Callers that give up at any moment, while replies are on their way to them.
pub(crate) fn callers_that_give_up(scale: Scale) {
    let served = serve(|builder| builder);
    let faults = Faults::none().latency(Duration::from_millis(1));
    served.store.set_faults(faults);
    let ids = served.open(Order::Global, scale);
    once(scale.threads, |number| {
        let timeout = |round: u64| Duration::from_micros((round * 397 + number * 131) % 2000);
        let call = |round| ids.within(timeout(round)).blocking().next();
        (0..scale.draws).filter_map(|round| call(round).ok()).collect()
    });
    drop(ids);
    served.end();
}
