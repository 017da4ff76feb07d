//! What is left in memory at a clean end goes back to the store, or is counted as a gap.

use std::time::Duration;

use idmill::store::{
    Bounds, Change, Fault, Faults, GiveBack, Identity, MemoryStore, Reserve, SequenceInfo, Store,
};
use idmill::{Allocator, Order, Range, SequenceName, Sequences};
use tokio::time::Instant;

fn over(store: &MemoryStore) -> Sequences {
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

/// Of each allocator: ids given back, and gaps.
fn outcome(allocator: &Allocator<u64>) -> (u64, u64) {
    let snapshot = allocator.snapshot();
    assert_eq!(snapshot.granted, snapshot.drawn + snapshot.given_back + snapshot.gaps.total());
    (snapshot.given_back, snapshot.gaps.total())
}

#[tokio::test]
async fn the_rest_is_what_the_next_process_begins_with() {
    let store = MemoryStore::new();
    let ids = over(&store);
    let (orders, users) = (drawn(&ids, "orders", 3).await, drawn(&ids, "users", 10).await);
    ids.close().await;
    assert_eq!((outcome(&orders), outcome(&users)), ((7, 0), (0, 0)));
    assert_eq!(drawn(&over(&store), "orders", 0).await.next().await.unwrap(), 4);
    assert_eq!(drawn(&over(&store), "users", 0).await.next().await.unwrap(), 11);
}

#[tokio::test]
async fn ranges_that_follow_each_other_go_back_as_one() {
    let store = MemoryStore::new();
    let ids = over(&store);
    let orders = ids.sequence::<u64>("orders").step(10).watermark(9).await.unwrap();
    for _ in 0..5 {
        orders.next().await.unwrap();
    }
    while orders.snapshot().remaining < 15 {
        tokio::task::yield_now().await;
    }
    ids.close().await;
    assert_eq!(outcome(&orders), (15, 0));
    assert_eq!(stored(&store, "orders").await.next, Some(6));
}

#[tokio::test]
async fn what_lies_before_the_ids_of_others_is_a_gap() {
    let store = MemoryStore::new();
    let ids = over(&store);
    let orders = drawn(&ids, "orders", 3).await;
    store.reserve(&request("orders", 5)).await.unwrap();
    ids.close().await;
    assert_eq!(outcome(&orders), (0, 7));
    assert_eq!(stored(&store, "orders").await.next, Some(16));
}

#[tokio::test]
async fn the_last_ids_of_a_sequence_go_back_too() {
    let store = MemoryStore::new();
    let ids = over(&store);
    let orders = ids.sequence::<u64>("orders").start(u64::MAX - 9).step(10).await.unwrap();
    orders.next().await.unwrap();
    ids.close().await;
    assert_eq!((outcome(&orders), stored(&store, "orders").await.next), ((9, 0), Some(u64::MAX - 8)));
}

#[tokio::test]
async fn nothing_goes_back_to_a_sequence_that_was_reset() {
    let store = MemoryStore::new();
    let ids = over(&store);
    let orders = drawn(&ids, "orders", 3).await;
    // Back at 1 and again up to 11, as it was: only the epoch tells.
    let name = SequenceName::new("orders").unwrap();
    store.set(&name, Change::new().next(1).backwards(true)).await.unwrap();
    store.reserve(&request("orders", 10)).await.unwrap();
    ids.close().await;
    assert_eq!((outcome(&orders), stored(&store, "orders").await.next), ((0, 7), Some(11)));
}

#[tokio::test]
async fn what_a_lease_holds_does_not_go_back() {
    let store = MemoryStore::new();
    let ids = over(&store);
    let orders = ids.sequence::<u64>("orders").order(Order::Thread).step(100).watermark(0).await.unwrap();
    let mut lease = orders.lease(10).unwrap();
    // The first came from the store, and not of a block.
    assert_eq!((lease.next().await.unwrap(), lease.next().await.unwrap()), (1, 2));
    ids.close().await;
    drop(lease);
    assert_eq!(outcome(&orders), (89, 9));
    assert_eq!(stored(&store, "orders").await.next, Some(12));
}

/// Were it sent again, it would take back what others have reserved meanwhile: here,
/// what is as long as the rest.
#[tokio::test]
async fn an_answer_that_is_lost_is_not_asked_for_again() {
    let store = MemoryStore::new();
    let ids = over(&store);
    let orders = drawn(&ids, "orders", 3).await;
    store.push_fault(Fault::LostReply);
    ids.close().await;
    assert_eq!(outcome(&orders), (0, 7), "whether it was taken is unknown: counted as a gap");
    assert_eq!(stored(&store, "orders").await.next, Some(4));
    assert_eq!(store.reserve(&request("orders", 7)).await.unwrap().range, Range::new(4, 7).unwrap());
    assert_eq!(stored(&store, "orders").await.next, Some(11));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_delays_the_end_no_longer_than_its_timeout() {
    let store = MemoryStore::new();
    let builder = Sequences::builder(store.clone());
    let ids = builder.store_timeout(Duration::from_secs(3)).start().unwrap();
    let orders = drawn(&ids, "orders", 3).await;
    let (mine, began) = (orders.clone(), Instant::now());
    store.set_faults(Faults::none().always(Fault::HangBefore));
    let closing = tokio::spawn(async move { ids.close().await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(
        mine.next().await.unwrap_err().kind(),
        idmill::ErrorKind::Closed,
        "callers do not wait for that"
    );
    closing.await.unwrap();
    assert_eq!((began.elapsed().as_secs(), outcome(&orders)), (3, (0, 7)));
}

#[tokio::test]
async fn dropping_gives_nothing_back() {
    let store = MemoryStore::new();
    let ids = over(&store);
    drop((drawn(&ids, "orders", 3).await, ids));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stored(&store, "orders").await.next, Some(11));
}

#[tokio::test]
async fn a_store_refuses_what_is_not_the_end_of_the_same_sequence() {
    let store = MemoryStore::new();
    let grant = store.reserve(&request("orders", 10)).await.unwrap();
    let back = |start, len, identity| {
        GiveBack::new(SequenceName::new("orders").unwrap(), identity, Range::new(start, len).unwrap())
    };
    let other = Identity { incarnation: grant.identity.incarnation ^ 1, ..grant.identity };
    for wrong in [back(4, 6, grant.identity), back(4, 8, grant.identity), back(4, 7, other)] {
        assert!(!store.give_back(&wrong).await.unwrap(), "{wrong:?}");
    }
    let unknown = back(4, 7, grant.identity).name(SequenceName::new("users").unwrap());
    assert!(!store.give_back(&unknown).await.unwrap());
    assert!(store.give_back(&back(4, 7, grant.identity)).await.unwrap());
    assert!(!store.give_back(&back(4, 7, grant.identity)).await.unwrap(), "once");
}
