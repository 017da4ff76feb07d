//! The promises to callers, over the memory store.

use std::collections::BTreeSet;
use std::time::Duration;

use idmill::store::{Change, Store};
use idmill::{ErrorKind, Order, SequenceName, Sequences, SequencesBuilder};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};

fn builder(store: &FaultyStore) -> SequencesBuilder {
    Sequences::builder(store.clone())
}

fn sequences(store: &FaultyStore) -> Sequences {
    builder(store).start().unwrap()
}

#[tokio::test]
async fn ids_start_at_one_and_grow_by_one() {
    let ids = sequences(&FaultyStore::new());
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    for expected in 1..=1000 {
        assert_eq!(orders.next().await.unwrap(), expected);
    }
}

/// The first published implementation of batches advanced its counter to 991 in this test.
#[tokio::test]
async fn hundred_callers_at_step_ten_advance_the_counter_by_100() {
    let store = FaultyStore::new();
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).await.unwrap();
    let calls = (0..100).map(|_| {
        let orders = orders.clone();
        tokio::spawn(async move { orders.next().await.unwrap() })
    });
    let mut seen = BTreeSet::new();
    for call in calls.collect::<Vec<_>>() {
        assert!(seen.insert(call.await.unwrap()));
    }
    assert_eq!(seen, (1..=100).collect());
    let info = store.inspect(&idmill::SequenceName::new("orders").unwrap()).await.unwrap().unwrap();
    assert_eq!(info.next, Some(101));
}

#[tokio::test]
async fn n_ids_at_step_s_take_exact_reserves_and_one_prefetch() {
    for (n, step, watermark) in
        [(1000_u64, 10_u64, 0_u64), (1000, 10, 5), (999, 10, 10), (1, 1, 1), (1000, 7, 3), (5, 1000, 999)]
    {
        let store = FaultyStore::new();
        let ids = sequences(&store);
        let orders = ids.sequence::<u64>("orders").step(step).watermark(watermark).await.unwrap();
        for expected in 1..=n {
            assert_eq!(orders.next().await.unwrap(), expected);
        }
        // Let the actor process its messages.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let (reserves, needed) = (orders.snapshot().reserves, n.div_ceil(step));
        let prefetch = u64::from(watermark > 0);
        assert!(
            (needed..=needed + prefetch).contains(&reserves),
            "{n} at {step}/{watermark}: {reserves}, needs {needed}"
        );
    }
}

#[tokio::test]
async fn the_last_id_is_handed_out_and_then_exhausted() {
    for order in [Order::Global, Order::Process, Order::Thread] {
        for last in [10, u64::MAX] {
            let ids = sequences(&FaultyStore::new());
            let orders =
                ids.sequence::<u64>("o").start(last - 4).max(last).step(3).order(order).await.unwrap();
            for expected in last - 4..=last {
                assert_eq!(orders.next().await.unwrap(), expected, "{order:?}");
            }
            for _ in 0..3 {
                let error = orders.next().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Exhausted);
                assert_eq!(error.sequence(), Some("o"));
                assert_eq!(orders.take(2).await.unwrap_err().kind(), ErrorKind::Exhausted);
                assert!(matches!(
                    orders.try_next().unwrap_err().kind(),
                    ErrorKind::Exhausted | ErrorKind::Empty
                ));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn exhaustion_is_cached_then_checked_by_one_reserve() {
    for order in [Order::Global, Order::Process, Order::Thread] {
        let store = FaultyStore::new();
        let ids = sequences(&store);
        let orders = ids.sequence::<u64>("o").max(5).step(3).block_size(1).order(order).await.unwrap();
        for expected in 1..=5 {
            assert_eq!(orders.next().await.unwrap(), expected, "{order:?}");
        }
        let exhausted = async |reserves: u64| {
            for _ in 0..100 {
                assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted, "{order:?}");
            }
            assert_eq!(orders.snapshot().reserves, reserves, "{order:?}");
        };
        let reserves = orders.snapshot().reserves;
        exhausted(reserves).await;
        tokio::time::sleep(Duration::from_secs(31)).await;
        exhausted(reserves + 1).await;
        let max = Change::new().max(8);
        store.set(&SequenceName::new("o").unwrap(), max).await.unwrap();
        exhausted(reserves + 1).await;
        tokio::time::sleep(Duration::from_secs(31)).await;
        for expected in 6..=8 {
            assert_eq!(orders.next().await.unwrap(), expected, "{order:?}");
        }
        assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    }
}

#[tokio::test(start_paused = true)]
async fn raised_max_takes_effect_after_revoke_or_a_restart() {
    let store = FaultyStore::new();
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").max(5).await.unwrap();
    assert_eq!(orders.take(5).await.unwrap().len(), 5);
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    store.set(&SequenceName::new("o").unwrap(), Change::new().max(7)).await.unwrap();
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted, "the end is not checked yet");
    let others = sequences(&store).sequence::<u64>("o").step(1).watermark(0).await.unwrap();
    assert_eq!(others.next().await.unwrap(), 6, "another process knows of no end");
    orders.discard();
    assert_eq!(orders.next().await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn try_next_sends_one_reserve_after_the_end_and_waits() {
    let store = FaultyStore::new();
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").max(5).await.unwrap();
    assert_eq!(orders.take(5).await.unwrap().len(), 5);
    let all_are = |kind| (0..100).all(|_| orders.try_next().unwrap_err().kind() == kind);
    assert!(all_are(ErrorKind::Exhausted));
    let before = store.requests();
    tokio::time::sleep(Duration::from_millis(29_990)).await;
    assert!(all_are(ErrorKind::Exhausted));
    assert_eq!(store.requests(), before);
    tokio::time::sleep(Duration::from_millis(20)).await;
    store.push_fault(Fault::Latency(Duration::from_secs(2)));
    for _ in 0..19 {
        assert!(all_are(ErrorKind::Empty), "the store has not answered yet");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(store.requests(), before + 1);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(all_are(ErrorKind::Exhausted));
    assert_eq!(store.requests(), before + 1);
}

#[tokio::test]
async fn a_take_across_the_end_is_refused_and_the_last_ids_stay() {
    let ids = sequences(&FaultyStore::new());
    let orders = ids.sequence::<i32>("o").max(10).step(4).await.unwrap();
    assert_eq!(orders.take(5).await.unwrap().iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(orders.take(6).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(orders.take(6).await.unwrap_err().kind(), ErrorKind::Exhausted);
    let mut rest = Vec::new();
    while let Ok(id) = orders.next().await {
        rest.push(id);
    }
    assert_eq!(rest, [6, 7, 8, 9, 10]);
}

#[tokio::test]
async fn a_take_spans_segments() {
    let ids = sequences(&FaultyStore::new());
    let orders = ids.sequence::<u64>("o").step(10).await.unwrap();
    let mut all = Vec::new();
    for n in [0, 1, 7, 25, 3, 100] {
        let taken = orders.take(n).await.unwrap();
        assert_eq!(taken.len(), n);
        all.extend(taken.iter());
    }
    assert!(all.is_sorted_by(|a, b| a < b));
    assert_eq!(all.len(), 136);
}

#[tokio::test(start_paused = true)]
async fn cached_ids_are_served_and_waiters_get_the_last_error() {
    for order in [Order::Process, Order::Thread] {
        let store = FaultyStore::new();
        let ids = sequences(&store);
        let sequence = ids.sequence::<u64>("o").step(10).watermark(5).order(order).block_size(1);
        let orders = sequence.timeout(Duration::from_secs(2)).await.unwrap();
        orders.warm(1).await.unwrap();
        store.set_faults(Faults::outage());
        for _ in 0..10 {
            orders.next().await.unwrap();
        }
        let begun = tokio::time::Instant::now();
        let error = orders.next().await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (ErrorKind::Deadline, 2), "{order:?}");
        let source = std::error::Error::source(&error).unwrap().downcast_ref::<idmill::Error>().unwrap();
        assert_eq!(source.kind(), ErrorKind::Unavailable);
        store.set_faults(Faults::default());
        assert_eq!(orders.next().await.unwrap(), 11);
    }
}

#[tokio::test]
async fn a_reply_that_was_lost_becomes_a_gap_and_is_counted() {
    let store = FaultyStore::with_faults(Faults::default().script([Fault::LostReply]));
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").step(10).watermark(0).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 11);
    let snapshot = orders.snapshot();
    assert_eq!((snapshot.gaps.unknown, snapshot.failures, snapshot.reserves), (10, 1, 2));
}

#[tokio::test]
async fn invalid_grants_are_rejected() {
    for fault in [Fault::Repeat, Fault::OutOfBounds, Fault::TooMany] {
        let store = FaultyStore::new();
        let ids = sequences(&store);
        let orders = ids.sequence::<u64>("o").max(1000).step(10).watermark(0).await.unwrap();
        for _ in 0..10 {
            orders.next().await.unwrap();
        }
        store.set_faults(Faults::default().script([fault]));
        assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::StoreViolation, "{fault:?}");
        assert!(orders.next().await.unwrap() > 10);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_callers_cost_a_gap_at_most() {
    let store = FaultyStore::with_faults(Faults::default().latency(Duration::from_millis(3)));
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").step(3).watermark(1).await.unwrap();
    let (mut seen, mut cancelled) = (BTreeSet::new(), 0);
    for round in 0..200_u64 {
        tokio::select! {
            biased;
            id = orders.next() => assert!(seen.insert(id.unwrap())),
            () = tokio::time::sleep(Duration::from_millis(round % 5)) => cancelled += 1,
        }
    }
    let snapshot = orders.snapshot();
    let drawn = seen.len() as u64;
    let explained = snapshot.granted - snapshot.remaining - snapshot.gaps.total();
    assert!(drawn <= explained && explained <= drawn + 1, "{drawn} drawn, {snapshot:?}");
    assert!(drawn > 50 && cancelled > 20, "{drawn} drawn, {cancelled} cancelled");
}

#[tokio::test]
async fn revoke_drops_all_ids_immediately() {
    for order in [Order::Process, Order::Thread] {
        let ids = sequences(&FaultyStore::new());
        let orders = ids.sequence::<u64>("o").step(100).order(order).block_size(10).await.unwrap();
        let mut handle = orders.handle();
        let (a, b) = (orders.next().await.unwrap(), handle.next().await.unwrap());
        assert!(a <= 100 && b <= 100);
        assert!(orders.try_next().unwrap() <= 100);
        // The thread's own block is revoked too. The ten ids of the handle's block count as drawn until it
        // next draws.
        let drawn = if order == Order::Thread { 1 + 10 + 1 } else { 3 };
        assert_eq!(orders.discard(), 100 - drawn);
        assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty);
        assert_eq!(handle.try_next().unwrap_err().kind(), ErrorKind::Empty);
        assert!(orders.next().await.unwrap() > 100);
        assert!(handle.next().await.unwrap() > 100);
    }
}

#[tokio::test]
async fn store_reset_takes_effect_with_the_next_range() {
    let store = FaultyStore::new();
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").step(10).watermark(0).await.unwrap();
    for _ in 0..15 {
        orders.next().await.unwrap();
    }
    let name = idmill::SequenceName::new("o").unwrap();
    let change = idmill::store::Change::new().next(1).backwards(true);
    store.set(&name, change).await.unwrap();
    for _ in 0..5 {
        assert!(orders.next().await.unwrap() > 15, "ids in memory are used first");
    }
    assert_eq!(orders.next().await.unwrap(), 1, "ids continue at the next id that was set");
    assert_eq!(orders.snapshot().identity.unwrap().epoch, 1);
}

#[tokio::test(start_paused = true)]
async fn ids_from_before_a_reset_are_dropped_by_the_next_range() {
    for remove in [false, true] {
        let store = FaultyStore::new();
        let ids = sequences(&store);
        let orders = ids.sequence::<u64>("o").step(10).watermark(5).await.unwrap();
        for expected in 1..=5 {
            assert_eq!(orders.next().await.unwrap(), expected);
        }
        let name = SequenceName::new("o").unwrap();
        if remove {
            store.remove(&name, None).await.unwrap();
            store.create(&name, idmill::store::Bounds::of::<u64>()).await.unwrap();
        } else {
            store.set(&name, Change::new().next(1).backwards(true)).await.unwrap();
        }
        assert_eq!(orders.next().await.unwrap(), 6, "this draw crosses the watermark");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let snapshot = orders.snapshot();
        assert_eq!((snapshot.gaps.revoked, snapshot.remaining), (4, 10), "removed: {remove}");
        assert_eq!(orders.next().await.unwrap(), 1);
    }
}

/// If a take mixed ids from before and after a reset, it could contain duplicates.
#[tokio::test]
async fn a_take_across_a_reset_is_all_from_after_it() {
    let store = FaultyStore::new();
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").step(10).watermark(0).await.unwrap();
    let _ = orders.take(2).await.unwrap();
    let name = idmill::SequenceName::new("o").unwrap();
    let change = idmill::store::Change::new().next(1).backwards(true);
    store.set(&name, change).await.unwrap();
    // Eight ids are still in memory.
    let taken: Vec<_> = orders.take(12).await.unwrap().iter().collect();
    assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
    assert_eq!(taken.len(), 12);
    assert_eq!(orders.snapshot().identity.unwrap().epoch, 1);
}

#[tokio::test]
async fn a_store_that_was_restored_to_an_earlier_time_is_refused() {
    let store = FaultyStore::new();
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").step(10).watermark(0).await.unwrap();
    let backup = store.snapshot();
    for _ in 0..10 {
        orders.next().await.unwrap();
    }
    store.restore(&backup);
    let error = orders.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation);
    assert!(error.to_string().contains("went back in time"), "{error}");

    // The restore of a backup also undoes a later reset.
    let name = idmill::SequenceName::new("o").unwrap();
    let change = idmill::store::Change::new().next(2).backwards(true);
    let backup = store.snapshot();
    store.set(&name, change).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 2, "ids continue at the next id that was set");
    store.restore(&backup);
    for _ in 0..9 {
        orders.next().await.unwrap();
    }
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::StoreViolation);
}

#[tokio::test]
async fn close_answers_every_caller() {
    let store = FaultyStore::with_faults(Faults::outage());
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").lazy().unwrap();
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let orders = orders.clone();
            tokio::spawn(async move { orders.next().await.unwrap_err().kind() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    ids.close().await;
    for call in waiting {
        assert_eq!(call.await.unwrap(), ErrorKind::Closed);
    }
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Closed);
    orders.discard();
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Closed, "a revocation does not reopen it");
    assert_eq!(ids.sequence::<u64>("p").lazy().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(ids.sequence::<u64>("p").await.unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn programs_without_a_runtime_are_served() {
    let ids = sequences(&FaultyStore::new());
    let orders = ids.sequence::<u64>("o").step(10).open_blocking().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let orders = orders.clone();
            std::thread::spawn(move || {
                (0..100).map(|_| orders.blocking().next().unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut seen = BTreeSet::new();
    for thread in threads {
        for id in thread.join().unwrap() {
            assert!(seen.insert(id));
        }
    }
    assert_eq!(seen.len(), 400);
    ids.blocking().close().unwrap();
    assert_eq!(orders.blocking().next().unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn global_draws_share_a_round_trip_and_prefetch_nothing() {
    let store = FaultyStore::with_faults(Faults::default().latency(Duration::from_millis(5)));
    let ids = sequences(&store);
    let orders = ids.sequence::<u64>("o").order(Order::Global).await.unwrap();
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Empty);
    let mut last = 0;
    for _ in 0..20 {
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let orders = orders.clone();
                tokio::spawn(async move { orders.next().await.unwrap() })
            })
            .collect();
        let mut largest = 0;
        for call in calls {
            let id = call.await.unwrap();
            assert!(id > last, "an id asked for later is larger");
            largest = largest.max(id);
        }
        last = largest;
    }
    let snapshot = orders.snapshot();
    assert_eq!((snapshot.granted, snapshot.remaining, snapshot.gaps.total()), (1000, 0, 0));
    assert!(snapshot.reserves <= 60, "{snapshot:?}");
}
