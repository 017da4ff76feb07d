//! Ids in memory that are confirmed, or dropped.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Change, Faults, MemoryStore, Store};
use idmill::{Allocator, ErrorKind, Order, SequenceName, Sequences};
use tokio::time::sleep;

const AGE: Duration = Duration::from_secs(8);

fn fresh(store: &MemoryStore) -> Sequences {
    Sequences::builder(store.clone()).freshness(AGE).start().unwrap()
}

async fn orders(ids: &Sequences) -> Allocator<u64> {
    ids.sequence::<u64>("orders").step(1000).watermark(0).await.unwrap()
}

fn name() -> SequenceName {
    SequenceName::new("orders").unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_revoked_is_dropped_in_time() {
    let store = MemoryStore::new();
    let (ids, others) = (fresh(&store), fresh(&store));
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    let revoked = others.revoke("orders").await.unwrap();
    assert_eq!((revoked.identity.epoch, revoked.next), (1, Some(1001)));
    assert_eq!(orders.next().await.unwrap(), 2, "until it hears of it");
    sleep(AGE).await;
    assert_eq!(orders.next().await.unwrap(), 1001);
    assert_eq!(orders.snapshot().gaps.revoked, 998);
}

#[tokio::test(start_paused = true)]
async fn who_revokes_drops_its_own_at_once() {
    let store = MemoryStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    ids.revoke("orders").await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1001);
    assert_eq!(ids.revoke("nothing").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_removal_and_a_reset_reach_a_process_that_does_not_draw() {
    for remove in [true, false] {
        let store = MemoryStore::new();
        let ids = fresh(&store);
        let orders = orders(&ids).await;
        assert_eq!(orders.next().await.unwrap(), 1);
        if remove {
            assert!(store.remove(&name()).await.unwrap());
        } else {
            store.set(&name(), Change::new().next(1).backwards(true)).await.unwrap();
        }
        sleep(AGE).await;
        assert_eq!(orders.snapshot().remaining, 0, "removed: {remove}");
        // A reset is followed, a removal has to be decided about.
        let next = orders.next().await;
        assert_eq!(next.is_err(), remove, "{next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_the_same_stays_however_long() {
    let store = MemoryStore::new();
    let ids = fresh(&store);
    let orders = orders(&ids).await;
    for expected in 1..200 {
        assert_eq!(orders.next().await.unwrap(), expected);
        sleep(AGE / 3).await;
    }
    assert_eq!(store.reserves(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_confirmed_is_dropped_when_it_is_too_old_and_not_before() {
    let store = MemoryStore::new();
    let ids = fresh(&store);
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    sleep(AGE).await;
    // A look was at most a quarter of that ago, and one more may fail.
    store.set_faults(Faults::outage());
    sleep(AGE / 4).await;
    assert_eq!(orders.try_next().unwrap(), 2);
    sleep(AGE).await;
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Dry);
    store.set_faults(Faults::none());
    assert_eq!(orders.next().await.unwrap(), 1001);
    sleep(AGE * 3).await;
    assert_eq!(orders.next().await.unwrap(), 1002);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_not_waited_for() {
    let store = MemoryStore::new();
    let ids = fresh(&store);
    let orders = orders(&ids).await;
    assert_eq!(orders.next().await.unwrap(), 1);
    store.set_faults(Faults::none().latency(Duration::from_secs(1000)));
    sleep(AGE + Duration::from_millis(1)).await;
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Dry);
}

#[tokio::test(start_paused = true)]
async fn leases_and_threads_let_go_too() {
    let store = MemoryStore::new();
    let ids = fresh(&store);
    let orders = ids.sequence::<u64>("orders").step(1000).watermark(0).order(Order::Thread).await.unwrap();
    let mut lease = orders.lease(10).unwrap();
    assert_eq!((orders.next().await.is_ok(), lease.next().await.is_ok()), (true, true));
    store.set(&name(), Change::new().revoke(true)).await.unwrap();
    sleep(AGE).await;
    assert!(orders.next().await.unwrap() > 1000);
    assert!(lease.next().await.unwrap() > 1000);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_sequences() {
    let store = Arc::new(MemoryStore::new());
    let ids = Sequences::builder(store.clone()).freshness(AGE).start().unwrap();
    store.create(&name(), Bounds::of::<u64>()).await.unwrap();
    assert_eq!(orders(&ids).await.next().await.unwrap(), 1);
    drop(ids);
    sleep(AGE).await;
    assert_eq!(Arc::strong_count(&store), 1);
}

#[tokio::test]
async fn an_age_that_cannot_be_is_refused() {
    let refused = Sequences::builder(MemoryStore::new()).freshness(Duration::ZERO).start().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}
