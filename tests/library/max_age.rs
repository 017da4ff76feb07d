//! Ids in memory are confirmed at the store in time, or dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use idmill::store::{Bounds, Change, SequenceInfo, Store, StoreFuture};
use idmill::{Allocator, ErrorKind, Order, Result, SequenceName, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::hooked::{Hooked, Hooks};
use parking_lot::Mutex;
use tokio::time::sleep;

const AGE: Duration = Duration::from_secs(8);

fn fresh(store: &FaultyStore) -> Sequences {
    Sequences::builder(store.clone()).max_age(AGE).start().unwrap()
}

async fn orders(ids: &Sequences) -> Allocator<u64> {
    ids.sequence::<u64>("orders").step(1000).watermark(0).await.unwrap()
}

fn name() -> SequenceName {
    SequenceName::new("orders").unwrap()
}

#[tokio::test(start_paused = true)]
async fn ids_revoked_by_others_are_dropped_in_time() {
    let store = FaultyStore::new();
    let (ids, others) = (fresh(&store), fresh(&store));
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    let revoked = others.admin().revoke("orders").await.unwrap();
    assert_eq!((revoked.identity.epoch, revoked.next), (1, Some(1001)));
    assert_eq!(orders.next().await.unwrap(), 2, "the revocation is seen after `max_age`");
    sleep(AGE).await;
    assert_eq!(orders.next().await.unwrap(), 1001);
    assert_eq!(orders.snapshot().gaps.revoked, 998);
}

#[tokio::test(start_paused = true)]
async fn revoke_drops_own_ids_at_once() {
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    ids.admin().revoke("orders").await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1001);
    assert_eq!(ids.admin().revoke("nothing").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn removal_and_reset_drop_ids_of_an_idle_process() {
    for remove in [true, false] {
        let store = FaultyStore::new();
        let ids = fresh(&store);
        let orders = orders(&ids).await;
        assert_eq!(orders.next().await.unwrap(), 1);
        if remove {
            assert!(store.remove(&name(), None).await.unwrap());
        } else {
            store.set(&name(), Change::new().next(1).backwards(true)).await.unwrap();
        }
        sleep(AGE).await;
        assert_eq!(orders.snapshot().remaining, 0, "removed: {remove}");
        // After a reset, ids continue. After a removal, draws fail until an administrator acts.
        let next = orders.next().await;
        assert_eq!(next.is_err(), remove, "{next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unchanged_sequence_keeps_its_ids() {
    let store = FaultyStore::new();
    let ids = fresh(&store);
    let orders = orders(&ids).await;
    for expected in 1..200 {
        assert_eq!(orders.next().await.unwrap(), expected);
        sleep(AGE / 3).await;
    }
    assert_eq!(store.reserves(), 1);
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_ids_are_dropped_only_when_too_old() {
    let store = FaultyStore::new();
    let ids = fresh(&store);
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    sleep(AGE).await;
    // The last check was at most a quarter of the max age ago, so one failed check drops no ids.
    store.set_faults(Faults::outage());
    sleep(AGE / 4).await;
    assert_eq!(orders.try_next().unwrap(), 2);
    sleep(AGE).await;
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty);
    store.set_faults(Faults::none());
    assert_eq!(orders.next().await.unwrap(), 1001);
    sleep(AGE * 3).await;
    assert_eq!(orders.next().await.unwrap(), 1002);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_not_waited_for() {
    let store = FaultyStore::new();
    let ids = fresh(&store);
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    store.set_faults(Faults::none().latency(Duration::from_secs(1000)));
    sleep(AGE + Duration::from_millis(1)).await;
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty);
}

#[tokio::test(start_paused = true)]
async fn blocks_and_threads_let_go_too() {
    let store = FaultyStore::new();
    let ids = fresh(&store);
    let sequence = ids.sequence::<u64>("orders").step(1000).watermark(0).order(Order::Thread);
    let orders = sequence.block_size(10).await.unwrap();
    let mut block = orders.handle();
    assert_eq!((orders.next().await.is_ok(), block.next().await.is_ok()), (true, true));
    store.set(&name(), Change::new().revoke(true)).await.unwrap();
    sleep(AGE).await;
    assert!(orders.next().await.unwrap() > 1000);
    assert!(block.next().await.unwrap() > 1000);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_sequences() {
    let store = Arc::new(FaultyStore::new());
    let ids = Sequences::builder(store.clone()).max_age(AGE).start().unwrap();
    store.create(&name(), Bounds::of::<u64>()).await.unwrap();
    assert_eq!(orders(&ids).await.next().await.unwrap(), 1);
    drop(ids);
    sleep(AGE).await;
    assert_eq!(Arc::strong_count(&store), 1);
}

#[tokio::test]
async fn an_age_that_cannot_be_is_refused() {
    for millis in [0, 3] {
        let age = Duration::from_millis(millis);
        let refused = Sequences::builder(FaultyStore::new()).max_age(age).start().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    }
}

/// Opens the sequence without a call to the store.
fn lazy(ids: &Sequences) -> Allocator<u64> {
    ids.sequence::<u64>("orders").step(1000).watermark(0).lazy().unwrap()
}

/// The sequence is opened, drawn from and dropped for each request.
#[tokio::test(start_paused = true)]
async fn unheld_sequence_is_dropped_in_time() {
    let store = FaultyStore::new();
    let ids = fresh(&store);
    assert_eq!(lazy(&ids).next().await.unwrap(), 1);
    store.set(&name(), Change::new().revoke(true)).await.unwrap();
    assert_eq!(lazy(&ids).next().await.unwrap(), 2);
    sleep(AGE).await;
    assert_eq!(lazy(&ids).next().await.unwrap(), 1001);
    // Revoke again, without a draw before the next check.
    sleep(AGE / 4).await;
    store.set(&name(), Change::new().revoke(true)).await.unwrap();
    sleep(AGE).await;
    assert_eq!(lazy(&ids).next().await.unwrap(), 2001);
}

#[tokio::test(start_paused = true)]
async fn sequence_opened_per_request_keeps_its_ids() {
    let store = FaultyStore::new();
    let ids = fresh(&store);
    for expected in 1..200 {
        assert_eq!(lazy(&ids).next().await.unwrap(), expected);
        sleep(AGE / 3).await;
    }
    assert_eq!(store.reserves(), 1);
}

/// Opening a changed sequence drops ids even without a maximum age.
#[tokio::test]
async fn open_drops_ids_of_another_identity() {
    for order in [Order::Process, Order::Thread] {
        let store = FaultyStore::new();
        let ids = Sequences::new(store.clone()).unwrap();
        let open = || ids.sequence::<u64>("orders").step(1000).watermark(0).block_size(1000).order(order);
        assert_eq!(open().await.unwrap().next().await.unwrap(), 1);
        assert_eq!(open().await.unwrap().next().await.unwrap(), 2, "ids of the same identity are kept");
        store.set(&name(), Change::new().revoke(true)).await.unwrap();
        assert_eq!(open().await.unwrap().next().await.unwrap(), 1001, "{order:?}");
        assert_eq!(open().await.unwrap().next().await.unwrap(), 1002, "{order:?}");
    }
}

/// When others open the sequence, the reserve in flight stays valid.
#[tokio::test(start_paused = true)]
async fn open_leaves_the_reserve_in_flight() {
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let open = || ids.sequence::<u64>("orders").step(1000).watermark(0);
    let orders = open().await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    store.set(&name(), Change::new().revoke(true)).await.unwrap();
    store.set_faults(Faults::none().latency(Duration::from_millis(20)));
    let opens = async {
        loop {
            open().await.unwrap();
        }
    };
    let drawn = async {
        sleep(Duration::from_millis(50)).await;
        orders.next().await.unwrap()
    };
    tokio::select! {
        drawn = drawn => assert_eq!(drawn, 1001),
        () = opens => {}
    }
    assert_eq!(store.reserves(), 2);
}

/// A store whose `inspect_many` a test controls.
#[derive(Debug, Default)]
struct Inspected {
    store: FaultyStore,
    /// Number of calls that panic.
    panics: AtomicUsize,
    /// Whether calls block their thread.
    blocks: AtomicBool,
    calls: AtomicUsize,
    /// How long a call takes.
    latency: Mutex<Duration>,
    names: Mutex<Vec<SequenceName>>,
}

impl Hooks for Inspected {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn inspect_many<'a>(
        &'a self,
        names: &'a [SequenceName],
    ) -> StoreFuture<'a, Vec<Result<Option<SequenceInfo>>>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let left = |left: usize| left.checked_sub(1);
            let panics = self.panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok();
            assert!(!panics, "injected panic");
            while self.blocks.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            self.names.lock().extend_from_slice(names);
            let latency = *self.latency.lock();
            if !latency.is_zero() {
                sleep(latency).await;
            }
            self.store.inspect_many(names).await
        })
    }
}

fn inspected() -> (FaultyStore, Arc<Hooked<Inspected>>) {
    let store = FaultyStore::new();
    let hooks = Inspected { store: store.clone(), ..Inspected::default() };
    (store, Arc::new(Hooked(hooks)))
}

#[tokio::test(start_paused = true)]
async fn max_age_outlives_a_panic_of_the_store() {
    let (store, hooked) = inspected();
    let ids = Sequences::builder(hooked.clone()).max_age(AGE).start().unwrap();
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    hooked.panics.store(1, Ordering::Relaxed);
    sleep(AGE).await;
    assert_eq!(orders.next().await.unwrap(), 2, "one failed check does not drop the ids");
    store.set(&name(), Change::new().revoke(true)).await.unwrap();
    sleep(AGE).await;
    assert_eq!(orders.next().await.unwrap(), 1001);
    hooked.panics.store(usize::MAX, Ordering::Relaxed);
    sleep(AGE).await;
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty, "never confirmed");
}

#[tokio::test]
async fn max_age_outlives_a_blocked_store_thread() {
    const LONG: Duration = Duration::from_secs(20);
    let (_store, hooked) = inspected();
    let age = Duration::from_millis(400);
    let ids = Sequences::builder(hooked.clone()).max_age(age).own_thread().start().unwrap();
    let orders = orders(&ids).await;
    orders.next().await.unwrap();
    let before = Arc::strong_count(&hooked);
    hooked.blocks.store(true, Ordering::Relaxed);
    let began = Instant::now();
    while orders.snapshot().remaining > 0 && began.elapsed() < LONG {
        sleep(age / 4).await;
    }
    let remaining = orders.snapshot().remaining;
    sleep(age * 3).await;
    let waiting = Arc::strong_count(&hooked) - before;
    hooked.blocks.store(false, Ordering::Relaxed);
    assert_eq!(remaining, 0, "ids in memory are too old");
    assert!(waiting <= 1, "{waiting} checks wait for the thread");
}

#[tokio::test(start_paused = true)]
async fn unheld_idle_sequence_is_not_asked_about() {
    let (_store, hooked) = inspected();
    let ids = Sequences::builder(hooked.clone()).max_age(AGE).start().unwrap();
    assert_eq!(lazy(&ids).next().await.unwrap(), 1);
    sleep(AGE).await;
    let calls = hooked.calls.load(Ordering::Relaxed);
    sleep(AGE * 100).await;
    assert_eq!(hooked.calls.load(Ordering::Relaxed), calls);
    assert_eq!(lazy(&ids).next().await.unwrap(), 1001);
}

#[tokio::test(start_paused = true)]
async fn sequence_in_use_is_read_at_most_four_times_in_max_age() {
    let (store, hooked) = inspected();
    let ids = Sequences::builder(hooked.clone()).max_age(AGE).start().unwrap();
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    for faults in [Faults::none(), Faults::outage()] {
        store.set_faults(faults);
        let before = hooked.calls.load(Ordering::Relaxed);
        sleep(AGE * 100).await;
        let calls = hooked.calls.load(Ordering::Relaxed) - before;
        assert!((1..=400).contains(&calls), "{calls} reads");
    }
}

/// A suspended process runs no check. If a draw read the clock, it could find the ids too old.
#[test]
fn draw_after_a_suspension_reads_no_clock() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let orders = runtime.block_on(async {
        let orders = orders(&fresh(&FaultyStore::new())).await;
        assert_eq!(orders.next().await.unwrap(), 1);
        orders
    });
    {
        // The clock advances at the first poll. Nothing else runs.
        let _context = runtime.enter();
        assert!(tokio::time::advance(AGE * 10).now_or_never().is_none());
    }
    assert_eq!(orders.try_next().unwrap(), 2);
    runtime.block_on(async { sleep(AGE).await });
    assert_eq!(orders.snapshot().remaining, 998, "the sequence is confirmed once the process runs again");
}

/// A check reads one batch of 256 in its time: the others come first in the next check.
#[tokio::test(start_paused = true)]
async fn slow_store_confirms_each_sequence_in_turn() {
    let (_store, hooked) = inspected();
    let ids = Sequences::builder(hooked.clone()).max_age(AGE).start().unwrap();
    let mut open = Vec::new();
    for n in 0..400 {
        let one = ids.sequence::<u64>(format!("tenant-{n}")).step(1000).watermark(0).await.unwrap();
        one.next().await.unwrap();
        open.push(one);
    }
    *hooked.latency.lock() = AGE * 3 / 16;
    sleep(AGE * 20).await;
    let dropped = open.iter().filter(|one| one.snapshot().gaps.revoked > 0).count();
    assert_eq!(dropped, 0, "{dropped} sequences were never confirmed");
}

#[tokio::test(start_paused = true)]
async fn refill_confirms_its_sequence() {
    let (_store, hooked) = inspected();
    let ids = Sequences::builder(hooked.clone()).max_age(AGE).start().unwrap();
    let busy = ids.sequence::<u64>("busy").step(1).watermark(0).await.unwrap();
    let idle = ids.sequence::<u64>("idle").step(10).watermark(0).await.unwrap();
    idle.next().await.unwrap();
    for _ in 0..100 {
        busy.next().await.unwrap();
        sleep(AGE / 16).await;
    }
    let names = hooked.names.lock();
    assert!(names.iter().any(|name| name.as_str() == "idle"));
    assert!(names.iter().all(|name| name.as_str() == "idle"), "the store was asked about {names:?}");
}
