//! The guarantees of the faulty store for tests.

use std::time::Duration;

use idmill::store::{Bounds, Reserve, Store};
use idmill::{ErrorKind, IdRange, Result, SequenceName};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use proptest::prelude::*;

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::new(1, 1000).unwrap())
}

fn range(start: u64, len: u64) -> IdRange {
    IdRange::new(start, len).unwrap()
}

async fn next(store: &FaultyStore) -> Option<u64> {
    store.inspect(&name("s")).await.unwrap()?.next
}

#[tokio::test]
async fn each_fault_is_applied_as_documented() {
    use ErrorKind::{Denied, Unavailable, UnknownOutcome};
    let table = [
        (Fault::LostRequest, Err(Unavailable), 11),
        (Fault::LostReply, Err(UnknownOutcome), 21),
        (Fault::Refuse(Denied), Err(Denied), 11),
        (Fault::Latency(Duration::ZERO), Ok(range(11, 10)), 21),
        (Fault::Repeat, Ok(range(1, 10)), 11),
        (Fault::OutOfBounds, Ok(range(1001, 1)), 11),
        (Fault::TooMany, Ok(range(11, 11)), 22),
        (Fault::Empty, Ok(range(0, 0)), 11),
    ];
    for (fault, answer, expected_next) in table {
        let store = FaultyStore::new();
        store.reserve(&request("s", 10)).await.unwrap();
        store.push_fault(fault);
        let got = store.reserve(&request("s", 10)).await;
        assert_eq!(got.map(|grant| grant.range).map_err(|error| error.kind()), answer, "{fault:?}");
        assert_eq!(next(&store).await, Some(expected_next), "{fault:?}");
        assert_eq!(store.reserve(&request("s", 1)).await.unwrap().range.start(), expected_next, "met once");
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_calls_hang_after_or_before_they_apply() {
    for (fault, expected) in [(Fault::Hang, Some(11)), (Fault::HangBefore, None)] {
        let store = FaultyStore::with_faults(Faults::none().script([fault]));
        let request = request("s", 10);
        let hung = tokio::time::timeout(Duration::from_secs(3600), store.reserve(&request)).await;
        assert!(hung.is_err(), "{fault:?}");
        assert_eq!(next(&store).await, expected, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_was_applied_or_not_depending_on_when() {
    let latency = Duration::from_millis(100);
    for (timeout, expected) in [(49, None), (51, Some(11))] {
        let store = FaultyStore::with_faults(Faults::none().latency(latency));
        let request = request("s", 10);
        let dropped = tokio::time::timeout(Duration::from_millis(timeout), store.reserve(&request)).await;
        assert!(dropped.is_err());
        store.set_faults(Faults::none());
        assert_eq!(next(&store).await, expected, "after {timeout} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_round_trip_and_each_failure_its_own() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_secs(1))).recording();
    store.fail_sequence("b", ErrorKind::Denied);
    let begun = tokio::time::Instant::now();
    let answers = store.reserve_many(&[request("a", 5), request("b", 5), request("c", 5)]).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(answers[1].as_ref().unwrap_err().sequence(), Some("b"));
    assert_eq!((store.reserves(), store.requests()), (1, 3));
    store.heal_sequence("b");
    assert!(store.reserve(&request("b", 5)).await.is_ok());
    assert_eq!(store.granted("b").iter().map(|grant| grant.range).collect::<Vec<_>>(), [range(1, 5)]);
}

#[tokio::test]
async fn an_outage_concerns_every_call_and_ends() {
    let store = FaultyStore::with_faults(Faults::outage());
    let clone = store.clone();
    for error in [
        clone.reserve(&request("s", 1)).await.unwrap_err(),
        clone.create(&name("s"), Bounds::of::<u64>()).await.unwrap_err(),
        clone.list_all().await.unwrap_err(),
        clone.remove(&name("s"), None).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    store.set_faults(Faults::none());
    assert_eq!(clone.list_all().await.unwrap(), []);
    assert_eq!(clone.reserve(&request("s", 1)).await.unwrap().range, range(1, 1));
}

proptest! {
    #[test]
    fn chance_repeats_with_its_seed_and_grants_stay_disjoint(seed: u64, calls in 1..200_usize) {
        let run = || {
            let faults = Faults::none().random(Fault::LostReply, 0.3).random(Fault::LostRequest, 0.3).seed(seed);
            let store = FaultyStore::with_faults(faults).recording();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let kinds: Vec<_> = (0..calls)
                .map(|_| runtime.block_on(store.reserve(&request("s", 2))).map(|g| g.range).map_err(|e| e.kind()))
                .collect();
            (kinds, store.granted("s").iter().map(|grant| grant.range).collect::<Vec<_>>())
        };
        let (answers, granted) = run();
        prop_assert_eq!(&(answers.clone(), granted.clone()), &run());
        let applied = answers.iter().filter(|a| !matches!(a, Err(ErrorKind::Unavailable))).count();
        prop_assert_eq!(granted.len(), applied);
        prop_assert!(granted.windows(2).all(|pair| pair[0].end() == u128::from(pair[1].start())));
    }
}
