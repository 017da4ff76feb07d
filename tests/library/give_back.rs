//! Ids that are left in memory at a clean end are given back to the store, or counted as a gap. The same
//! holds for the ids of cancelled takes.

use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join;
use idmill::store::{Bounds, Change, GiveBack, Identity, Reserve, SequenceInfo, Store, StoreFuture};
use idmill::{Allocator, ErrorKind, IdRange, Order, SequenceName, Sequences, Snapshot};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use idmill_testing::hooked::{Hooked, Hooks};
use idmill_testing::{eventually, holds};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

fn over(store: &FaultyStore) -> Sequences {
    Sequences::new(store.clone()).unwrap()
}

async fn drawn(ids: &Sequences, name: &str, count: usize) -> Allocator<u64> {
    let allocator = ids.sequence::<u64>(name).step(10).watermark(0).await.unwrap();
    for _ in 0..count {
        allocator.next().await.unwrap();
    }
    allocator
}

async fn stored(store: &impl Store, name: &str) -> SequenceInfo {
    store.inspect(&SequenceName::new(name).unwrap()).await.unwrap().expect("it exists")
}

fn request(name: &str, count: u64) -> Reserve {
    let name = SequenceName::new(name).unwrap();
    Reserve::new(name, count).create(Bounds::of::<u64>())
}

/// Returns the ids given back, and the gaps.
fn outcome(allocator: &Allocator<u64>) -> (u64, u64) {
    let snapshot = allocator.snapshot();
    assert_eq!(snapshot.granted, snapshot.drawn + snapshot.given_back + snapshot.gaps.total());
    (snapshot.given_back, snapshot.gaps.total())
}

#[tokio::test]
async fn next_process_starts_with_the_returned_ids() {
    let store = FaultyStore::new();
    let ids = over(&store);
    let (orders, users) = (drawn(&ids, "orders", 3).await, drawn(&ids, "users", 10).await);
    ids.close().await;
    assert_eq!((outcome(&orders), outcome(&users)), ((7, 0), (0, 0)));
    assert_eq!(drawn(&over(&store), "orders", 0).await.next().await.unwrap(), 4);
    assert_eq!(drawn(&over(&store), "users", 0).await.next().await.unwrap(), 11);
}

#[tokio::test]
async fn ranges_that_follow_each_other_go_back_as_one() {
    let store = FaultyStore::new();
    let ids = over(&store);
    let orders = ids.sequence::<u64>("orders").step(10).watermark(9).await.unwrap();
    for _ in 0..5 {
        orders.next().await.unwrap();
    }
    eventually("a second range is in memory", async || {
        holds(orders.snapshot().remaining >= 15, orders.snapshot())
    })
    .await;
    ids.close().await;
    assert_eq!(outcome(&orders), (15, 0));
    assert_eq!(stored(&store, "orders").await.next, Some(6));
}

#[tokio::test]
async fn rest_below_ids_of_others_is_a_gap() {
    let store = FaultyStore::new();
    let ids = over(&store);
    let orders = drawn(&ids, "orders", 3).await;
    store.reserve(&request("orders", 5)).await.unwrap();
    ids.close().await;
    assert_eq!(outcome(&orders), (0, 7));
    assert_eq!(stored(&store, "orders").await.next, Some(16));
}

#[tokio::test]
async fn the_last_ids_of_a_sequence_go_back_too() {
    let store = FaultyStore::new();
    let ids = over(&store);
    let orders = ids.sequence::<u64>("orders").start(u64::MAX - 9).step(10).await.unwrap();
    orders.next().await.unwrap();
    ids.close().await;
    assert_eq!((outcome(&orders), stored(&store, "orders").await.next), ((9, 0), Some(u64::MAX - 8)));
}

#[tokio::test]
async fn nothing_goes_back_to_a_sequence_that_was_reset() {
    let store = FaultyStore::new();
    let ids = over(&store);
    let orders = drawn(&ids, "orders", 3).await;
    // `next` goes back to 1 and returns to 11: only the epoch differs.
    let name = SequenceName::new("orders").unwrap();
    store.set(&name, Change::new().next(1).backwards(true)).await.unwrap();
    store.reserve(&request("orders", 10)).await.unwrap();
    ids.close().await;
    assert_eq!((outcome(&orders), stored(&store, "orders").await.next), ((0, 7), Some(11)));
}

#[tokio::test]
async fn ids_held_by_a_block_are_not_given_back() {
    let store = FaultyStore::new();
    let ids = over(&store);
    let sequence = ids.sequence::<u64>("orders").order(Order::Thread).step(100).watermark(0);
    let orders = sequence.block_size(10).await.unwrap();
    let mut block = orders.handle();
    // The first id came from the store, not from a block.
    assert_eq!((block.next().await.unwrap(), block.next().await.unwrap()), (1, 2));
    ids.close().await;
    drop(block);
    assert_eq!(outcome(&orders), (89, 9));
    assert_eq!(stored(&store, "orders").await.next, Some(12));
}

/// A second attempt would take back a range of the same length that others have reserved since then.
#[tokio::test]
async fn lost_reply_is_not_requested_again() {
    let store = FaultyStore::new();
    let ids = over(&store);
    let orders = drawn(&ids, "orders", 3).await;
    store.push_fault(Fault::LostReply);
    ids.close().await;
    assert_eq!(outcome(&orders), (0, 7), "a give-back with an unknown outcome is a gap");
    assert_eq!(stored(&store, "orders").await.next, Some(4));
    assert_eq!(store.reserve(&request("orders", 7)).await.unwrap().range, IdRange::new(4, 7).unwrap());
    assert_eq!(stored(&store, "orders").await.next, Some(11));
}

#[tokio::test(start_paused = true)]
async fn silent_store_delays_close_by_the_close_timeout() {
    let store = FaultyStore::new();
    let builder = Sequences::builder(store.clone());
    let ids = builder.close_timeout(Duration::from_secs(3)).start().unwrap();
    let orders = drawn(&ids, "orders", 3).await;
    let (mine, began) = (orders.clone(), Instant::now());
    store.set_faults(Faults::none().always(Fault::HangBefore));
    let closing = tokio::spawn(async move { ids.close().await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(
        mine.next().await.unwrap_err().kind(),
        idmill::ErrorKind::Closed,
        "callers do not wait for the give-back"
    );
    closing.await.unwrap();
    assert_eq!((began.elapsed().as_secs(), outcome(&orders)), (3, (0, 7)));
}

#[tokio::test]
async fn dropped_sequences_give_their_ids_back() {
    let store = FaultyStore::new();
    let ids = over(&store);
    drop((drawn(&ids, "orders", 3).await, ids));
    eventually("the ids are back", async || {
        let next = stored(&store, "orders").await.next;
        holds(next == Some(4), next)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn evicted_sequence_gives_its_ids_back() {
    let store = FaultyStore::new();
    let idle = Duration::from_secs(60);
    let ids = Sequences::builder(store.clone()).idle_eviction(idle).start().unwrap();
    // One draw each 21 minutes, as a server does for a client.
    for expected in 1..=3 {
        let orders = ids.sequence::<u64>("orders").await.unwrap();
        assert_eq!(orders.next().await.unwrap(), expected);
        drop(orders);
        sleep(Duration::from_secs(21 * 60)).await;
        assert!(ids.is_empty(), "evicted");
        assert_eq!(stored(&store, "orders").await.next, Some(expected + 1));
    }
    // The ids were granted again, and that is not a store that went back in time.
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    assert_eq!((orders.next().await.unwrap(), orders.snapshot().failures), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn evicted_sequence_leaves_later_ids_alone() {
    let store = FaultyStore::new();
    let idle = Duration::from_secs(60);
    let ids = Sequences::builder(store.clone()).idle_eviction(idle).start().unwrap();
    drop(drawn(&ids, "orders", 3).await);
    store.reserve(&request("orders", 5)).await.unwrap();
    sleep(idle * 3).await;
    assert_eq!((ids.len(), stored(&store, "orders").await.next), (0, Some(16)));
    assert_eq!(drawn(&ids, "orders", 0).await.next().await.unwrap(), 16);
}

#[tokio::test]
async fn give_back_not_at_the_end_of_its_sequence_is_rejected() {
    let store = FaultyStore::new();
    let grant = store.reserve(&request("orders", 10)).await.unwrap();
    let back = |start, len, identity| {
        GiveBack::new(SequenceName::new("orders").unwrap(), identity, IdRange::new(start, len).unwrap())
    };
    let other = Identity { incarnation: grant.identity.incarnation ^ 1, ..grant.identity };
    for wrong in [back(4, 6, grant.identity), back(4, 8, grant.identity), back(4, 7, other)] {
        assert!(!store.give_back(&wrong).await.unwrap(), "{wrong:?}");
    }
    let unknown =
        GiveBack::new(SequenceName::new("users").unwrap(), grant.identity, back(4, 7, grant.identity).rest);
    assert!(!store.give_back(&unknown).await.unwrap());
    assert!(store.give_back(&back(4, 7, grant.identity)).await.unwrap());
    assert!(!store.give_back(&back(4, 7, grant.identity)).await.unwrap(), "once");
}

/// Delays each give-back on its way to the store.
#[derive(Debug)]
struct Delayed {
    store: FaultyStore,
    /// Milliseconds for each give-back in turn; later delays are random.
    delays: Mutex<Vec<u64>>,
    rng: Mutex<Rng>,
}

impl Hooks for Delayed {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, idmill::Result<bool>> {
        let delay = self.delays.lock().pop().unwrap_or_else(|| [0, 100][self.rng.lock().usize(0..2)]);
        Box::pin(async move {
            sleep(Duration::from_millis(delay)).await;
            self.store.give_back(back).await
        })
    }
}

fn delayed(store: &FaultyStore, delays: &[u64], seed: u64) -> Sequences {
    let delays = delays.iter().rev().copied().collect();
    let (delays, rng) = (Mutex::new(delays), Mutex::new(Rng::with_seed(seed)));
    Sequences::builder(Hooked(Delayed { store: store.clone(), delays, rng })).seed(seed).start().unwrap()
}

#[tokio::test(start_paused = true)]
async fn give_backs_in_reverse_order_are_honest() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(2)));
    let ids = delayed(&store, &[50, 0], 1);
    let orders = ids.sequence::<u64>("orders").max_buffered(10).max_take(100).await.unwrap();
    orders.warm(1).await.unwrap();
    // Each cancelled take leaves [1, 11) in memory; [11, 106) and [106, 206) are given back.
    for _ in 0..2 {
        assert!(timeout(Duration::from_millis(1), orders.take(100)).await.is_err());
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_millis(100)).await;
    assert_eq!((orders.snapshot().given_back, stored(&store, "orders").await.next), (195, Some(11)));
    let taken: Vec<_> = orders.take(15).await.unwrap().into_iter().collect();
    assert_eq!(taken, (1..=15).collect::<Vec<_>>());
    sleep(Duration::from_millis(100)).await;
    assert_eq!(orders.snapshot().failures, 0);
    assert!(stored(&store, "orders").await.next <= Some(31), "nothing is skipped");
}

/// Another process may give back ids that lie between two ranges granted to this process.
#[tokio::test(start_paused = true)]
async fn give_back_of_another_process_is_honest() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(2)));
    let ids = delayed(&store, &[0, 0], 1);
    let orders = ids.sequence::<u64>("orders").max_buffered(10).max_take(100).await.unwrap();
    orders.warm(1).await.unwrap();
    let cancelled = async || {
        assert!(timeout(Duration::from_millis(1), orders.take(100)).await.is_err());
        sleep(Duration::from_millis(10)).await;
        stored(&store, "orders").await.next
    };
    // [1, 11) is in memory.
    assert_eq!(cancelled().await, Some(11));
    let other = store.reserve(&request("orders", 10)).await.unwrap();
    assert_eq!(cancelled().await, Some(21));
    let back = GiveBack::new(SequenceName::new("orders").unwrap(), other.identity, other.range);
    assert!(store.give_back(&back).await.unwrap());
    assert_eq!(orders.take(15).await.unwrap().len(), 15);
    assert_eq!(orders.snapshot().failures, 0);
}

/// Takes ids, and cancels some takes. Returns all ids of the other takes, and the number of cancelled ones.
async fn busy(orders: &Allocator<u64>, mut rng: Rng) -> (Vec<u64>, u64) {
    let (mut got, mut cancelled) = (Vec::new(), 0);
    for _ in 0..40 {
        let taking = orders.take(rng.u64(1..100));
        match timeout(Duration::from_millis(rng.u64(1..20)), taking).await {
            Ok(Ok(ids)) => got.extend(ids),
            Ok(Err(error)) => assert_eq!(error.kind(), ErrorKind::Deadline, "{error}"),
            Err(_) => cancelled += 1,
        }
        sleep(Duration::from_millis([0, 20, 200][rng.usize(0..3)])).await;
    }
    (got, cancelled)
}

#[tokio::test(start_paused = true)]
async fn cancelled_takes_with_jitter_are_honest() {
    let (mut all_cancelled, mut all_given_back) = (0, 0);
    for seed in 0..50 {
        let latency = Faults::none().latency_between(Duration::from_millis(1), Duration::from_millis(20));
        let store = FaultyStore::with_faults(latency.seed(seed));
        let open = async |number| {
            let ids = delayed(&store, &[], seed * 2 + number);
            let sequence = ids.sequence::<u64>("orders").max_buffered(10 + seed % 3 * 20).max_take(100);
            sequence.await.unwrap()
        };
        let (first, second) = (open(0).await, open(1).await);
        let mut rng = Rng::with_seed(seed);
        let ((one, some), (two, others)) = join(busy(&first, rng.fork()), busy(&second, rng.fork())).await;
        all_cancelled += some + others;
        sleep(Duration::from_secs(60)).await;
        let (count, ids) = (one.len() + two.len(), one.into_iter().chain(two).collect::<HashSet<_>>());
        assert_eq!(ids.len(), count, "seed {seed}: duplicate ids");
        for orders in [first, second] {
            let Snapshot { granted, drawn, remaining, given_back, gaps, failures, .. } = orders.snapshot();
            assert_eq!(failures, 0, "seed {seed}");
            assert_eq!(granted, drawn + remaining + given_back + gaps.total(), "seed {seed}");
            assert!(drawn > 0, "seed {seed}");
            all_given_back += given_back;
        }
    }
    assert!(all_cancelled > 100 && all_given_back > 100, "{all_cancelled}, {all_given_back}");
}
