//! Callers that try and never wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use idmill::{ErrorKind, Order, Result};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use idmill_testing::{eventually_blocking, holds};

use tokio::time::{Instant, sleep};

use super::{LONG, builder, returns};

/// Tries until there is an id, or for a minute of the paused clock.
async fn try_until(mut draw: impl FnMut() -> Result<u64>) -> Option<u64> {
    for _ in 0..6000 {
        match draw() {
            Ok(id) => return Some(id),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Empty),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn trying_alone_starts_a_refill() {
    let ids = builder(FaultyStore::new()).start().unwrap();
    for (name, order) in [("process", Order::Process), ("thread", Order::Thread)] {
        let adaptive = ids.sequence::<u64>(name).order(order).lazy().unwrap();
        assert_eq!(try_until(|| adaptive.try_next()).await, Some(1));
        let batch =
            ids.sequence::<u64>(format!("{name}-batch")).order(order).step(2).watermark(0).lazy().unwrap();
        for expected in 1..=6 {
            assert_eq!(try_until(|| batch.try_next()).await, Some(expected));
        }
        let mut handle = ids.sequence::<u64>(format!("{name}-handle")).order(order).lazy().unwrap().handle();
        assert_eq!(try_until(|| handle.try_next()).await, Some(1));
    }
    let global = ids.sequence::<u64>("global").order(Order::Global).lazy().unwrap();
    assert_eq!(try_until(|| global.try_next()).await, None, "`Global` reserves only for waiting callers");
    assert_eq!(global.snapshot().reserves, 0);
}

/// Threads try an empty sequence, and another must be served.
#[test]
fn callers_that_only_try_hold_no_other_up() {
    returns(|| {
        let store = FaultyStore::new();
        let ids = builder(store.clone()).store_timeout(LONG * 10).own_thread().start().unwrap();
        let open = |name| ids.sequence::<u64>(name).step(1).watermark(0).lazy().unwrap();
        let (empty, others) = (open("empty"), open("others"));
        store.push_fault(Fault::HangBefore);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(empty.try_next().unwrap_err().kind(), ErrorKind::Empty);
                    }
                });
            }
            eventually_blocking("the store is called", || holds(empty.snapshot().reserves > 0, "no call"));
            for expected in 1..=100 {
                assert_eq!(others.blocking().next().unwrap(), expected);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[tokio::test(start_paused = true)]
async fn try_next_retries_a_permanent_failure_with_backoff() {
    let store = FaultyStore::new();
    let ids = builder(store.clone()).start().unwrap();
    store.fail_sequence("o", ErrorKind::Denied);
    let orders = ids.sequence::<u64>("o").lazy().unwrap();
    assert_eq!(try_until(|| orders.try_next()).await, None);
    let reserves = orders.snapshot().reserves;
    assert!((8..=40).contains(&reserves), "{reserves} in a minute, in which the delay doubles up to 5 s");
    // Each caller that waits gets the error immediately.
    for _ in 0..3 {
        assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Denied);
    }
    store.heal_sequence("o");
    assert_eq!(try_until(|| orders.try_next()).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn permanent_error_is_returned_without_a_request_after_two() {
    let store = FaultyStore::new();
    let ids = builder(store.clone()).start().unwrap();
    store.fail_sequence("o", ErrorKind::Denied);
    let orders = ids.sequence::<u64>("o").lazy().unwrap();
    let requests_of_a_draw = async || {
        let (before, began) = (store.requests(), Instant::now());
        assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(began.elapsed(), Duration::ZERO);
        store.requests() - before
    };
    assert_eq!([requests_of_a_draw().await, requests_of_a_draw().await], [1, 1]);
    let before = store.requests();
    assert_eq!([requests_of_a_draw().await, requests_of_a_draw().await], [0, 0]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(store.requests(), before, "no draw, no request");
    assert_eq!([requests_of_a_draw().await, requests_of_a_draw().await], [1, 0]);
    store.heal_sequence("o");
    assert_eq!(requests_of_a_draw().await, 0, "the delay stands");
    orders.discard();
    assert_eq!(orders.next().await.unwrap(), 1);
}

/// A caller keeps trying. The n-th delay is 10 ms × 2^n, up to 5 s, plus up to its length.
#[tokio::test(start_paused = true)]
async fn delay_doubles_from_10_ms_to_5_s_with_jitter() {
    let store = FaultyStore::new();
    let ids = builder(store.clone()).seed(1).start().unwrap();
    store.fail_sequence("o", ErrorKind::Denied);
    let orders = ids.sequence::<u64>("o").lazy().unwrap();
    let mut times = Vec::new();
    while times.len() < 40 {
        let before = store.requests();
        assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty);
        sleep(Duration::from_millis(if times.len() < 5 { 1 } else { 10 })).await;
        if store.requests() > before {
            times.push(Instant::now());
        }
    }
    let delays: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    for (n, delay) in delays.iter().enumerate() {
        let (least, late) = ((10 << n.min(9)).min(5_000), if n < 4 { 1 } else { 10 });
        // Each of the two times is late, by less than the time between two calls.
        assert!((least - late..=2 * least + 2 * late).contains(delay), "{n}: {delays:?}");
    }
    // The delay starts at its shortest again after a grant.
    store.heal_sequence("o");
    assert_eq!(try_until(|| orders.try_next()).await, Some(1));
    orders.discard();
    store.fail_sequence("o", ErrorKind::Denied);
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Denied);
    let before = store.requests();
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty);
    sleep(Duration::from_millis(22)).await;
    assert_eq!(store.requests(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn try_take_gives_all_or_nothing_and_starts_a_refill() {
    let ids = builder(FaultyStore::new()).start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(5).lazy().unwrap();
    assert_eq!(orders.try_take(3).unwrap_err().kind(), ErrorKind::Empty);
    orders.warm(1).await.unwrap();
    assert_eq!(orders.try_take(3).unwrap().iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(orders.try_take(8).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(orders.try_take(7).unwrap().iter().collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(try_until(|| orders.try_next()).await, Some(11));
    assert_eq!(orders.try_take(u64::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
    let gaps = orders.snapshot().gaps;
    assert_eq!(gaps.total(), 0, "{gaps:?}");
    ids.close().await;
    assert_eq!(orders.try_take(1).unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_one_call_is_its_own() {
    let ids = builder(FaultyStore::with_faults(Faults::outage())).start().unwrap();
    let orders = ids.sequence::<u64>("orders").timeout(LONG).lazy().unwrap();
    let begun = tokio::time::Instant::now();
    let hurried = orders.within(Duration::from_millis(70));
    assert_eq!(hurried.next().await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_eq!(hurried.take(3).await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_eq!(hurried.handle().next().await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_eq!(begun.elapsed(), Duration::from_millis(210));
}
