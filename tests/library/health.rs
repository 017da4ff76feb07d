//! The answers to a readiness probe.

use std::time::Duration;

use idmill::store::{Bounds, Change, Store};
use idmill::{ErrorKind, Health, Order, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};

const MINUTE: Duration = Duration::from_secs(60);

fn start(store: &FaultyStore) -> Sequences {
    Sequences::builder(store.clone()).seed(1).start().unwrap()
}

fn troubles(ids: &Sequences) -> Vec<(String, Health, ErrorKind)> {
    let report = ids.health();
    assert_eq!(
        report.is_ready(),
        report.troubles.iter().all(|one| one.health == Health::Failing),
        "{report}"
    );
    report.troubles.iter().map(|one| (one.name.to_string(), one.health, one.error.kind())).collect()
}

#[tokio::test(start_paused = true)]
async fn troubled_sequences_are_listed_worst_first_with_reason() {
    let store = FaultyStore::new();
    let ids = start(&store);
    assert!(ids.health().is_ready() && ids.health().sequences == 0);
    let fine = ids.sequence::<u64>("fine").await.unwrap();
    let lasts = ids.sequence::<u64>("lasts").step(10).watermark(9).await.unwrap();
    let empty = ids.sequence::<u64>("empty").timeout(MINUTE).await.unwrap();
    for one in [&fine, &lasts] {
        one.warm(1).await.unwrap();
    }
    assert!(troubles(&ids).is_empty());

    store.fail_sequence("lasts", ErrorKind::Unavailable);
    store.fail_sequence("empty", ErrorKind::Denied);
    lasts.next().await.unwrap();
    lasts.next().await.unwrap();
    empty.next().await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let expected = [
        ("empty".to_owned(), Health::Empty, ErrorKind::Denied),
        ("lasts".to_owned(), Health::Failing, ErrorKind::Unavailable),
    ];
    assert_eq!(troubles(&ids), expected);
    let report = ids.health();
    assert_eq!((report.health, report.sequences, report.is_ready()), (Health::Empty, 3, false));
    let shown = report.to_string();
    assert!(shown.starts_with("not ready: 3 sequences, 2 in trouble; `empty` is empty ("), "{shown}");

    store.heal_sequence("empty");
    empty.next().await.unwrap();
    assert_eq!(troubles(&ids), expected[1..]);
    assert!(ids.health().is_ready());
}

/// Without draws, nothing calls the store. So a probe must trigger a reserve.
#[tokio::test(start_paused = true)]
async fn a_probe_alone_notices_that_the_store_is_back() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let orders = ids.sequence::<u64>("orders").timeout(Duration::from_secs(1)).await.unwrap();
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        orders.revoke();
        store.fail_sequence("orders", kind);
        orders.next().await.unwrap_err();
        tokio::time::sleep(MINUTE).await;
        assert_eq!(troubles(&ids), [("orders".to_owned(), Health::Empty, kind)]);
        store.heal_sequence("orders");
        let mut probes = 0;
        while !ids.health().is_ready() {
            probes += 1;
            assert!(probes < 10, "{}", ids.health());
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert!(orders.try_next().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn uncached_sequence_is_not_ready_while_callers_wait() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let orders = ids.sequence::<u64>("orders").order(Order::Global).timeout(MINUTE).await.unwrap();
    orders.next().await.unwrap();
    store.set_faults(Faults::outage());
    let waiting = tokio::spawn({
        let orders = orders.clone();
        async move { orders.next().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(troubles(&ids), [("orders".to_owned(), Health::Empty, ErrorKind::Unavailable)]);
    waiting.await.unwrap().unwrap_err();
    // No draw is waiting or failing now. Only the next draw shows whether the store is still unreachable.
    assert_eq!(troubles(&ids), [("orders".to_owned(), Health::Failing, ErrorKind::Unavailable)]);
}

#[tokio::test(start_paused = true)]
async fn exhausted_sequence_is_not_ready_until_max_is_raised() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let orders = ids.sequence::<u64>("orders").max(3).await.unwrap();
    let _ids = orders.take(3).await.unwrap();
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(troubles(&ids), [("orders".to_owned(), Health::Ended, ErrorKind::Exhausted)]);
    ids.set("orders", Change::new().max(9)).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(orders.next().await.unwrap(), 4);
    assert!(troubles(&ids).is_empty());
}

#[tokio::test]
async fn closed_sequences_are_not_ready() {
    let ids = start(&FaultyStore::new());
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    orders.next().await.unwrap();
    ids.close().await;
    let report = ids.health();
    assert_eq!((report.health, report.is_ready()), (Health::Ended, false));
    assert!(report.troubles.iter().all(|one| one.error.kind() == ErrorKind::Closed), "{report}");
}

#[tokio::test(start_paused = true)]
async fn snapshot_reports_store_position_and_latency() {
    let slow = |millis| Faults::none().latency(Duration::from_millis(millis));
    let (store, bounds) = (FaultyStore::new(), Bounds::new(100, 1000).unwrap());
    store.create(&"s".parse().unwrap(), bounds).await.unwrap();
    let ids = start(&store);
    let s = ids.sequence::<u64>("s").step(10).watermark(0).await.unwrap();
    let before = s.snapshot();
    assert_eq!((before.latency, before.reached, before.bounds), (None, None, None));
    for (millis, reached) in [(7, 109), (9, 119)] {
        store.set_faults(slow(millis));
        for _ in 0..10 {
            s.next().await.unwrap();
        }
        let now = s.snapshot();
        assert_eq!((now.reached, now.bounds), (Some(reached), Some(bounds)));
        // The clock counts whole milliseconds.
        let took = now.latency.unwrap().as_millis();
        assert!((millis..=millis + 1).contains(&u64::try_from(took).unwrap()), "{took} ms");
    }
}

/// The store is called again every 30 s. Until the store grants ids, the sequence stays ended.
#[tokio::test(start_paused = true)]
async fn exhausted_sequence_stays_ended_without_draws() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let reached = ids.sequence::<u64>("reached").max(3).await.unwrap();
    let others = ids.sequence::<u64>("others").max(10).await.unwrap();
    store.set(&"others".parse().unwrap(), Change::new().next(Some(10))).await.unwrap();
    assert_eq!(reached.take(3).await.unwrap().len(), 3);
    // The rest of the sequence belongs to another process.
    let other = start(&store).sequence::<u64>("others").await.unwrap();
    assert_eq!(other.next().await.unwrap(), 10);
    assert_eq!(reached.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(others.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    for _ in 0..200 {
        let ended = |allocator: &idmill::Allocator<u64>| allocator.snapshot().ended;
        assert_eq!([ended(&reached), ended(&others)], [Some(ErrorKind::Exhausted); 2]);
        assert_eq!(ids.health().health, Health::Ended);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let asked = store.reserves();
    assert!(asked < 20, "asked {asked} times in 200 s");
    // Both sequences are served again without a draw.
    for name in ["reached", "others"] {
        store.set(&name.parse().unwrap(), Change::new().max(Some(1000))).await.unwrap();
    }
    for _ in 0..62 {
        ids.health();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(ids.health().health, Health::Serving);
}

/// A probe every 31 s for 17 days. If each attempt left a segment in memory, the drop of the chain at the end
/// would overflow the stack.
#[tokio::test(start_paused = true)]
async fn exhausted_sequence_closes_after_50_000_probes() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let orders = ids.sequence::<u64>("orders").max(3).await.unwrap();
    assert_eq!(orders.take(3).await.unwrap().len(), 3);
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    let before = store.reserves();
    for _ in 0..50_000 {
        assert_eq!(ids.health().health, Health::Ended);
        tokio::time::sleep(Duration::from_secs(31)).await;
    }
    assert!(store.reserves() - before > 40_000, "{} attempts", store.reserves() - before);
    ids.close().await;
}
