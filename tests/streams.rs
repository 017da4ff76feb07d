//! Ids and blocks as streams: what they yield, when they end, and what dropping them costs.

use std::time::Duration;

use futures_util::future::poll_immediate;
use futures_util::stream::{FusedStream, StreamExt, TryStreamExt};
use idmill::{Allocator, ErrorKind, Sequences};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};

async fn orders(store: &FaultyStore, max: u64) -> Allocator<u64> {
    let ids = Sequences::builder(store.clone()).seed(1).start().unwrap();
    let patience = Duration::from_millis(500);
    ids.sequence("orders").max(max).step(8).watermark(0).patience(patience).await.unwrap()
}

/// Every granted id was handed out, is in memory, or is counted as a gap.
fn nothing_is_lost(orders: &Allocator<u64>) -> u64 {
    let now = orders.snapshot();
    assert_eq!(now.granted, now.drawn + now.remaining + now.gaps.total(), "{now:?}");
    now.gaps.total()
}

#[tokio::test]
async fn a_stream_shares_the_sequence_and_loses_nothing_when_it_is_dropped() {
    let orders = orders(&FaultyStore::new(), u64::MAX).await;
    let mut ids = orders.ids_stream();
    assert_eq!(ids.next().await.unwrap().unwrap(), 1);
    assert_eq!(orders.next().await.unwrap(), 2);
    let next: Vec<u64> = ids.take(20).try_collect().await.unwrap();
    assert_eq!(next, (3..=22).collect::<Vec<_>>());
    assert_eq!(nothing_is_lost(&orders), 0);
    assert_eq!(orders.next().await.unwrap(), 23);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_while_it_waits_costs_at_most_one_id() {
    let store = FaultyStore::new();
    let orders = orders(&store, u64::MAX).await;
    store.set_faults(Faults::none().latency(Duration::from_millis(50)));
    for _ in 0..30 {
        let mut ids = orders.ids_stream();
        while let Some(Some(item)) = poll_immediate(ids.next()).await {
            item.unwrap();
        }
        let before = nothing_is_lost(&orders);
        drop(ids);
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(nothing_is_lost(&orders) <= before + 1);
    }
}

/// Some wait for an id, and some for a place to wait; none is polled again.
#[tokio::test(start_paused = true)]
async fn unpolled_streams_keep_no_place() {
    let ids = Sequences::builder(FaultyStore::new()).max_waiting(8).start().unwrap();
    let open = |name| ids.sequence::<u64>(name).step(1).watermark(0).lazy().unwrap();
    let mut streams: Vec<_> = (0..20).map(|_| open("orders").ids_stream()).collect();
    for stream in &mut streams {
        assert!(poll_immediate(stream.next()).await.is_none());
    }
    assert_eq!(open("others").next().await.unwrap(), 1);
    for expected in 1..=20 {
        assert_eq!(streams.remove(0).next().await.unwrap().unwrap(), expected);
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_sequence() {
    let orders = orders(&FaultyStore::new(), 10).await;
    let mut ids = orders.ids_stream();
    let mut drawn = Vec::new();
    let last = loop {
        match ids.next().await.unwrap() {
            Ok(id) => drawn.push(id),
            Err(error) => break error,
        }
    };
    assert_eq!((last.kind(), last.sequence()), (ErrorKind::Exhausted, Some("orders")));
    assert_eq!(drawn, (1..=10).collect::<Vec<_>>());
    assert!(ids.is_terminated() && ids.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_when_the_store_is_back() {
    let store = FaultyStore::new();
    let orders = orders(&store, u64::MAX).await;
    let (mut ids, mut blocks) = (orders.ids_stream(), orders.ranges_stream(4));
    store.set_faults(Faults::outage());
    for _ in 0..2 {
        assert_eq!(ids.next().await.unwrap().unwrap_err().kind(), ErrorKind::Deadline);
        assert_eq!(blocks.next().await.unwrap().unwrap_err().kind(), ErrorKind::Deadline);
    }
    assert!(!ids.is_terminated() && !blocks.is_terminated());
    store.set_faults(Faults::none());
    assert_eq!(ids.next().await.unwrap().unwrap(), 1);
    assert_eq!(blocks.next().await.unwrap().unwrap().len(), 4);
}

/// With ids in memory a stream is always ready, and whoever folds it in one poll asks for no pause.
#[tokio::test]
async fn a_stream_lets_others_run() {
    let orders = FaultyStore::new();
    let ids = Sequences::new(orders).unwrap();
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    orders.warm().await.unwrap();
    let all = orders.ids_stream().try_for_each(|_| async { Ok(()) });
    assert!(tokio::time::timeout(Duration::from_millis(20), all).await.is_err());
    let all = orders.ranges_stream(3).try_for_each(|_| async { Ok(()) });
    assert!(tokio::time::timeout(Duration::from_millis(20), all).await.is_err());
}

#[tokio::test]
async fn blocks_have_as_many_ids_as_were_asked_for() {
    let orders = orders(&FaultyStore::new(), 25).await;
    let mut blocks = orders.ranges_stream(10);
    for first in [1, 11] {
        let block: Vec<u64> = blocks.next().await.unwrap().unwrap().ids().collect();
        assert_eq!(block, (first..first + 10).collect::<Vec<_>>());
    }
    assert_eq!(blocks.next().await.unwrap().unwrap_err().kind(), ErrorKind::Exhausted);
    assert!(blocks.is_terminated() && blocks.next().await.is_none());
    assert_eq!(nothing_is_lost(&orders), 0);
    assert_eq!(orders.take(5).await.unwrap().ids().collect::<Vec<_>>(), [21, 22, 23, 24, 25]);
}

#[tokio::test]
async fn blocks_that_cannot_be_are_refused_once() {
    let orders = orders(&FaultyStore::new(), u64::MAX).await;
    for n in [0, u64::MAX] {
        let items: Vec<_> = orders.ranges_stream(n).collect().await;
        let kinds: Vec<_> = items.iter().map(|item| item.as_ref().unwrap_err().kind()).collect();
        assert_eq!(kinds, [ErrorKind::InvalidInput]);
    }
}

#[tokio::test]
async fn a_stream_ends_when_the_sequences_are_closed() {
    let ids = Sequences::new(FaultyStore::with_faults(Faults::none().always(Fault::HangBefore))).unwrap();
    let orders = ids.sequence::<u64>("orders").lazy().unwrap();
    let waiting = tokio::spawn(orders.ids_stream().collect::<Vec<_>>());
    tokio::task::yield_now().await;
    ids.close().await;
    let items = waiting.await.unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].as_ref().unwrap_err().kind(), ErrorKind::Closed);
}
