//! When a sequence is refilled and when not, and the fate of reserved ids, over the memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use idmill::store::{Bounds, Capabilities, Grant, Reserve, SequenceInfo, Store, StoreFuture};
use idmill::{Error, ErrorKind, IdRange, Result, SequenceName, Sequences, SequencesBuilder, Status};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use idmill_testing::hooked::{Hooked, Hooks};
use tokio::time::{Instant, sleep, timeout};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn builder(store: &FaultyStore) -> SequencesBuilder {
    Sequences::builder(store.clone()).seed(1)
}

async fn stored(store: &FaultyStore, name: &str) -> SequenceInfo {
    store.inspect(&SequenceName::new(name).unwrap()).await.unwrap().expect("it exists")
}

#[tokio::test(start_paused = true)]
async fn lost_replies_burn_few_ids_and_none_without_a_handle() {
    let store = FaultyStore::new();
    let ids = builder(&store).idle_eviction(Duration::from_secs(60)).start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(100_000).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    store.set_faults(Faults::none().random(Fault::LostReply, 1.0));
    // Crosses the watermark: a refill is due, and no caller waits for it.
    let _ = orders.take(60_000).await.unwrap();
    sleep(DAY).await;
    let next = stored(&store, "orders").await.next.unwrap();
    assert!(next < 200_001 + 500_000, "the first attempt requests a step, retries the minimum: {next}");
    drop(orders);
    sleep(Duration::from_secs(20)).await;
    let next = stored(&store, "orders").await.next;
    sleep(DAY).await;
    assert_eq!(stored(&store, "orders").await.next, next, "an unused sequence reserves no ids");
    assert_eq!(ids.len(), 0, "evicted");
}

/// A crash wastes at most a ten-thousandth of a small sequence, whatever the id type.
#[tokio::test(start_paused = true)]
async fn default_limits_follow_the_stored_bounds() {
    for (max, most) in [(32_767, 3), (100, 1)] {
        let store = FaultyStore::new();
        let name = SequenceName::new("small").unwrap();
        store.create(&name, Bounds::new(1, max).unwrap()).await.unwrap();
        for is_lazy in [false, true] {
            let ids = builder(&store).start().unwrap();
            let small = ids.sequence::<i64>("small");
            let small = if is_lazy { small.lazy() } else { small.await }.unwrap();
            // Without the bounds, the first reserve has the type's size.
            let draws = if is_lazy { 40 } else { 20 };
            for _ in 0..draws {
                small.next().await.unwrap();
                sleep(Duration::from_millis(10)).await;
            }
            assert!(small.snapshot().remaining <= most, "{max}: {:?}", small.snapshot());
            let error = small.try_take(most + 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_reply_makes_only_the_next_refill_small() {
    let store = FaultyStore::with_faults(Faults::none().script([Fault::LostReply]));
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(1_000).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1_001);
    sleep(Duration::from_secs(1)).await;
    let snapshot = orders.snapshot();
    assert_eq!((snapshot.granted, snapshot.gaps.unknown, snapshot.reserves), (1_032, 1_000, 3));
}

#[tokio::test]
async fn a_take_that_cannot_be_served_reserves_nothing() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let small = ids.sequence::<i32>("small").max_buffered(1_000).await.unwrap();
    for too_many in [u64::MAX, 1_000_001] {
        let error = small.take(too_many).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("exceeds `max_take` 1000000"), "{error}");
    }
    let short = ids.sequence::<i32>("short").max(500_000).await.unwrap();
    let error = short.take(500_001).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(error.to_string().contains("500001 ids requested, 500000 left"), "{error}");
    assert_eq!((store.reserves(), short.snapshot().granted), (0, 0));
    // Nothing was reserved, so the remaining ids are still available to all processes.
    let others = builder(&store).start().unwrap();
    let other = others.sequence::<i32>("short").step(1).watermark(0).await.unwrap();
    assert_eq!(other.take(499_990).await.unwrap().len(), 499_990);
    assert_eq!(short.take(11).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(short.take(10).await.unwrap().iter().next_back(), Some(500_000));
}

#[tokio::test]
async fn take_is_limited_by_max_take() {
    let ids = builder(&FaultyStore::new()).start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).max_take(20).await.unwrap();
    let error = orders.take(21).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("exceeds `max_take` 20"), "{error}");
    assert_eq!(orders.take(20).await.unwrap().len(), 20);
    let wide = ids.sequence::<u64>("wide").step(2_000_000).await.unwrap();
    assert_eq!(wide.take(2_000_000).await.unwrap().len(), 2_000_000, "`take` allows a whole step");
    let large = ids.sequence::<u64>("large").max_buffered(3_000_000).await.unwrap();
    assert_eq!(large.take(3_000_000).await.unwrap().len(), 3_000_000, "`take` allows what memory may hold");
    for (orders, too_many) in [(&wide, 2_000_001), (&large, 3_000_001)] {
        assert_eq!(orders.take(too_many).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    for outside in [0, (1 << 48) + 1] {
        let error = ids.sequence::<u64>("others").max_take(outside).await.unwrap_err();
        assert!(error.to_string().contains("must be from 1 to 2^48"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_cancelled_take_memory_holds_no_more_than_it_may() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_secs(1)));
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<i32>("orders").max_buffered(1_000).await.unwrap();
    orders.warm(1).await.unwrap();
    let cancelled = timeout(Duration::from_millis(500), orders.take(900_000)).await;
    assert!(cancelled.is_err() && store.reserves() == 2, "{cancelled:?}");
    sleep(Duration::from_secs(5)).await;
    let snapshot = orders.snapshot();
    assert_eq!((snapshot.remaining, snapshot.given_back, snapshot.gaps.total()), (1_000, 899_032, 0));
    assert_eq!(snapshot.granted, 900_032);
    for expected in 1..=1_001 {
        assert_eq!(orders.next().await.unwrap(), expected);
    }
    assert!(orders.snapshot().remaining <= 1_000);
}

/// The store takes no ids back.
#[tokio::test(start_paused = true)]
async fn ids_above_the_cap_are_a_gap_if_none_go_back() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_secs(1)));
    let ids = Sequences::new(Hooked(Short(store.clone()))).unwrap();
    let orders = ids.sequence::<u64>("orders").max_buffered(10).await.unwrap();
    let cancelled = timeout(Duration::from_millis(500), orders.take(100)).await;
    assert!(cancelled.is_err() && store.reserves() == 1, "{cancelled:?}");
    sleep(Duration::from_secs(5)).await;
    let snapshot = orders.snapshot();
    assert_eq!((snapshot.remaining, snapshot.given_back, snapshot.gaps.total()), (10, 0, 90));
}

#[tokio::test(start_paused = true)]
async fn watermark_is_half_of_a_fixed_step_unless_set() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(100).await.unwrap();
    for expected in 1..=50 {
        assert_eq!(orders.next().await.unwrap(), expected);
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.reserves(), 1);
    assert_eq!(orders.next().await.unwrap(), 51);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(store.reserves(), 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_take_leaves_ids_in_memory() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let timeout = Duration::from_secs(2);
    let orders = ids.sequence::<u64>("orders").step(100).watermark(0).timeout(timeout).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    store.set_faults(Faults::outage());
    let greedy = tokio::spawn({
        let orders = orders.clone();
        async move { orders.take(100).await.unwrap_err().kind() }
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!((orders.snapshot().remaining, orders.snapshot().is_empty), (99, true));
    assert_eq!(orders.next().now_or_never().unwrap().unwrap(), 2);
    assert_eq!(greedy.await.unwrap(), ErrorKind::Deadline);
    assert_eq!(orders.take(98).await.unwrap().iter().next_back(), Some(100));
    assert_eq!((orders.snapshot().drawn, orders.snapshot().gaps.total()), (100, 0));
}

#[tokio::test(start_paused = true)]
async fn waiting_take_gets_memory_and_the_grant() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(100).watermark(0).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    store.push_fault(Fault::Latency(Duration::from_secs(2)));
    let greedy = tokio::spawn({
        let orders = orders.clone();
        async move { orders.take(100).await.unwrap() }
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(orders.take(9).await.unwrap().iter().next_back(), Some(10));
    assert_eq!(greedy.await.unwrap().iter().collect::<Vec<_>>(), (11..=110).collect::<Vec<_>>());
    assert_eq!((orders.snapshot().remaining, orders.snapshot().gaps.total()), (90, 0));
}

#[tokio::test(start_paused = true)]
async fn try_take_above_a_step_succeeds_after_a_refill() {
    let ids = builder(&FaultyStore::new()).start().unwrap();
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    orders.warm(1).await.unwrap();
    let error = orders.try_take(33).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert!(error.to_string().contains("memory has 32 ids, 33 requested"), "{error}");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(orders.try_take(33).unwrap().iter().next_back(), Some(33));
    let small = ids.sequence::<u64>("small").max_buffered(100).await.unwrap();
    let error = small.try_take(101).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("exceed `max_buffered` 100; use `take`"), "{error}");
    assert!(small.try_take(100).is_err());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(small.try_take(100).unwrap().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn warm_fills_memory_to_the_level() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    orders.warm(500_000).await.unwrap();
    assert_eq!((orders.snapshot().remaining, store.reserves()), (500_000, 1));
    assert_eq!(orders.try_take(500_000).unwrap().len(), 500_000);
    let small = ids.sequence::<u64>("small").max_buffered(100).await.unwrap();
    let error = small.warm(101).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("`max_buffered` is 100"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn ids_of_a_rejected_take_stay_in_memory() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).await.unwrap();
    assert_eq!(orders.take(6).await.unwrap().iter().next_back(), Some(6));
    store.push_fault(Fault::Refuse(ErrorKind::Denied));
    assert_eq!(orders.take(20).await.unwrap_err().kind(), ErrorKind::Denied);
    for expected in 7..=10 {
        assert_eq!(orders.try_next().unwrap(), expected);
    }
    assert_eq!((orders.snapshot().drawn, orders.snapshot().gaps.total()), (10, 0));
}

/// Grants short ranges and takes no ids back, as windows do. Only the last reserve reveals that the sequence
/// ends.
#[derive(Debug)]
struct Short(FaultyStore);

impl Hooks for Short {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().batches(false).gives_back(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move { self.0.reserve(&request.clone().count(request.count.min(100))).await })
    }
}

#[tokio::test]
async fn ids_of_a_take_at_the_end_stay_in_memory() {
    let store = Arc::new(Hooked(Short(FaultyStore::new()))) as Arc<dyn Store>;
    let ids = Sequences::new(store).unwrap();
    // Use a fixed step, as the `idmill` command does: it does not limit memory, which can hold the whole
    // sequence.
    let orders = ids.sequence::<u64>("orders").max(616).step(1).watermark(0).await.unwrap();
    assert_eq!(orders.take(700).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!((orders.snapshot().remaining, orders.snapshot().gaps.total()), (616, 0));
    assert_eq!(orders.take(616).await.unwrap().iter().collect::<Vec<_>>(), (1..=616).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn take_counts_ids_that_are_in_flight() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<u64>("orders").max(1_000).step(900).watermark(0).await.unwrap();
    store.push_fault(Fault::Latency(Duration::from_secs(8)));
    let waiting = tokio::spawn({
        let orders = orders.clone();
        async move { orders.next().await }
    });
    // Half of the delay is over: the store has granted the ids.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(stored(&store, "orders").await.next, Some(901));
    assert_eq!(orders.take(500).await.unwrap().iter().next_back(), Some(501));
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
    assert_eq!(orders.take(600).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(orders.take(499).await.unwrap().iter().next_back(), Some(1_000));
}

#[tokio::test(start_paused = true)]
async fn sequence_does_not_end_while_ids_go_back() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let orders = ids.sequence::<u64>("orders").max(100).max_buffered(10).await.unwrap();
    // Each call is applied in the middle of its latency: first the reserve, then the give-back.
    store.push_fault(Fault::Latency(Duration::from_secs(1)));
    store.push_fault(Fault::Latency(Duration::from_secs(8)));
    assert!(timeout(Duration::from_millis(600), orders.take(100)).await.is_err());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(orders.snapshot().remaining, 10);
    for expected in 1..=100 {
        assert_eq!(orders.next().await.unwrap(), expected);
    }
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
}

/// A store whose `inspect` never returns.
#[derive(Debug)]
struct HangingReads(FaultyStore);

impl Store for HangingReads {
    idmill::store_calls!(|this| this.0 => capabilities reserve reserve_many give_back create inspect_many list set
        remove record swap_record list_records);

    fn inspect<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn take_does_not_query_the_rest() {
    let ids = Sequences::new(HangingReads(FaultyStore::new())).unwrap();
    let orders = ids.sequence::<u64>("orders").lazy().unwrap();
    assert_eq!(orders.take(10).await.unwrap().len(), 10);
}

/// A standby while the flag is set.
#[derive(Debug)]
struct Standby(FaultyStore, AtomicBool);

impl Hooks for Standby {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            if self.1.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Unavailable, "this is a standby").refusing_waiters());
            }
            self.0.reserve(request).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn refused_waiters_do_not_wait_for_their_deadline() {
    let store = Arc::new(Hooked(Standby(FaultyStore::new(), AtomicBool::new(true))));
    let ids = Sequences::builder(store.clone()).seed(1).start().unwrap();
    let orders = ids.sequence::<u64>("orders").lazy().unwrap();
    let begun = Instant::now();
    for _ in 0..3 {
        let (next, take) = tokio::join!(orders.next(), orders.take(5));
        for error in [next.unwrap_err(), take.unwrap_err()] {
            assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, Status::Transient));
            assert!(error.to_string().contains("this is a standby"), "{error}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // The store is called again while memory is low, but not for each `try_next`.
    let before = orders.snapshot().reserves;
    for _ in 0..1_000 {
        assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty);
        sleep(Duration::from_millis(60)).await;
    }
    let reserves = orders.snapshot().reserves - before;
    assert!((8..=40).contains(&reserves), "{reserves} in a minute, in which the delay doubles up to 5 s");
    store.1.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(orders.try_next().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_names_the_stores_last_error() {
    let store = FaultyStore::with_faults(Faults::outage());
    let orders = builder(&store).start().unwrap().sequence::<u64>("orders").lazy().unwrap();
    let begun = Instant::now();
    let error = orders.next().await.unwrap_err();
    assert_eq!((error.kind(), begun.elapsed().as_secs()), (ErrorKind::Deadline, 30), "the default timeout");
    let cause = std::error::Error::source(&error).unwrap().downcast_ref::<Error>().unwrap();
    assert_eq!(cause.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&cause.to_string()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_sequence_is_not_evicted_while_a_reserve_is_under_way() {
    let store = FaultyStore::new();
    let builder =
        builder(&store).idle_eviction(Duration::from_secs(10)).store_timeout(Duration::from_secs(2_000));
    let ids = builder.start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).await.unwrap();
    store.push_fault(Fault::Latency(Duration::from_secs(1_000)));
    let waiting = tokio::spawn(async move { orders.next().await });
    sleep(Duration::from_secs(1)).await;
    waiting.abort();
    sleep(Duration::from_secs(500)).await;
    assert_eq!(ids.len(), 1, "the sequence waits for its reserve");
    sleep(Duration::from_secs(1_000)).await;
    assert_eq!(ids.len(), 0);
}

#[tokio::test]
async fn unused_sequence_is_closed_with_the_others() {
    let ids = builder(&FaultyStore::new()).start().unwrap();
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    ids.close().await;
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Closed);
}

/// Another process reserves an id before each reserve of this one.
#[derive(Debug)]
struct Crowded(FaultyStore);

impl Hooks for Crowded {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            self.0.reserve(&request.clone().count(1)).await?;
            self.0.reserve(request).await
        })
    }
}

#[tokio::test]
async fn ids_in_a_row_have_no_gap_between_them() {
    let ids = Sequences::new(Hooked(Crowded(FaultyStore::new()))).unwrap();
    let orders = ids.sequence::<u64>("orders").step(3).watermark(0).await.unwrap();
    let range = |text: &str| text.parse::<IdRange>().unwrap();
    assert_eq!(orders.take_in_a_row(2).await.unwrap(), range("2..4"));
    // 4 and 6 are not consecutive: 5 is of the other process.
    assert_eq!(orders.take_in_a_row(2).await.unwrap(), range("7..9"));
    assert_eq!(orders.snapshot().gaps.dropped, 2);
    assert_eq!(orders.take_in_a_row(0).await.unwrap().len(), 0);
}

#[tokio::test]
async fn ids_in_a_row_are_tried_eight_times() {
    let ids = Sequences::new(Hooked(Crowded(FaultyStore::new()))).unwrap();
    let orders = ids.sequence::<u64>("orders").step(64).watermark(0).await.unwrap();
    assert_eq!(orders.take_in_a_row(63).await.unwrap().start(), 2);
    let error = orders.take_in_a_row(63).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, Status::Transient));
    assert!(error.to_string().contains("63 consecutive ids are not available"), "{error}");
    assert_eq!(orders.snapshot().gaps.dropped, 8 * 63);
}

#[tokio::test(start_paused = true)]
async fn ids_in_a_row_wait_within_one_timeout() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(30)));
    let ids = Sequences::new(Hooked(Crowded(store))).unwrap();
    let builder = ids.sequence::<u64>("orders").step(64).watermark(0);
    let orders = builder.timeout(Duration::from_millis(200)).await.unwrap();
    assert_eq!(orders.take_in_a_row(63).await.unwrap().start(), 2);
    let begun = Instant::now();
    assert_eq!(orders.take_in_a_row(63).await.unwrap_err().kind(), ErrorKind::Deadline);
    assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
}
