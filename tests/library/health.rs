//! The answers to a readiness probe.

use std::time::Duration;

use idmill::store::{Bounds, Change, Store};
use idmill::{Allocator, ErrorKind, Health, Order, Sequences};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};

const MINUTE: Duration = Duration::from_secs(60);

fn start(store: &FaultyStore) -> Sequences {
    Sequences::builder(store.clone()).seed(1).start().unwrap()
}

fn troubles(ids: &Sequences) -> Vec<(String, Health, ErrorKind)> {
    let report = ids.health();
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
    assert_eq!((report.health, report.sequences, report.is_ready()), (Health::Empty, 3, true));
    let shown = report.to_string();
    assert!(shown.starts_with("ready: 3 sequences, 2 in trouble; `empty` is empty ("), "{shown}");

    store.heal_sequence("empty");
    tokio::time::sleep(MINUTE).await;
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
        orders.discard();
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
async fn exhausted_sequence_is_in_trouble_until_max_is_raised() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let orders = ids.sequence::<u64>("orders").max(3).await.unwrap();
    let _ids = orders.take(3).await.unwrap();
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(troubles(&ids), [("orders".to_owned(), Health::Ended, ErrorKind::Exhausted)]);
    ids.admin().set("orders", Change::new().max(9)).await.unwrap();
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
    let before = store.reserves();
    for _ in 0..200 {
        let ended = |allocator: &idmill::Allocator<u64>| allocator.snapshot().ended;
        assert_eq!([ended(&reached), ended(&others)], [Some(ErrorKind::Exhausted); 2]);
        assert_eq!(ids.health().health, Health::Ended);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(store.reserves(), before, "only callers query the store about an exhausted sequence");
    // A caller finds that both sequences have ids again.
    for (name, allocator) in [("reached", reached), ("others", others)] {
        store.set(&name.parse().unwrap(), Change::new().max(Some(1000))).await.unwrap();
        allocator.next().await.unwrap();
    }
    assert_eq!(ids.health().health, Health::Serving);
}

/// A draw every 31 s for 17 days. If each attempt left a segment in memory, the drop of the chain at the end
/// would overflow the stack.
#[tokio::test(start_paused = true)]
async fn exhausted_sequence_closes_after_50_000_draws() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let orders = ids.sequence::<u64>("orders").max(3).await.unwrap();
    assert_eq!(orders.take(3).await.unwrap().len(), 3);
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    let before = store.reserves();
    for _ in 0..50_000 {
        assert!(orders.try_next().is_err());
        tokio::time::sleep(Duration::from_secs(31)).await;
    }
    assert!(store.reserves() - before > 40_000, "{} attempts", store.reserves() - before);
    ids.close().await;
}

async fn warm(ids: &Sequences, name: &str) -> Allocator<u64> {
    let allocator = ids.sequence::<u64>(name).timeout(Duration::from_secs(1)).await.unwrap();
    allocator.warm(1).await.unwrap();
    allocator
}

/// Draws until memory is empty.
async fn drain(allocator: &Allocator<u64>) -> ErrorKind {
    loop {
        if let Err(error) = allocator.next().await {
            return error.kind();
        }
    }
}

/// Probes once a second; returns whether the last three reports were ready.
async fn settled(ids: &Sequences) -> bool {
    let mut ready = Vec::new();
    for _ in 0..10 {
        ready.push(ids.health().is_ready());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(ready[7..].iter().all(|one| *one == ready[9]), "{ready:?}");
    ready[9]
}

#[tokio::test(start_paused = true)]
async fn error_of_one_sequence_leaves_the_process_ready() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let _served = warm(&ids, "served").await;
    let exhausted = ids.sequence::<u64>("exhausted").max(1).await.unwrap();
    assert_eq!(drain(&exhausted).await, ErrorKind::Exhausted);
    assert!(settled(&ids).await, "exhausted: {}", ids.health());
    let removed = warm(&ids, "removed").await;
    ids.admin().remove("removed").await.unwrap();
    assert_eq!(drain(&removed).await, ErrorKind::StoreViolation);
    assert!(settled(&ids).await, "removed: {}", ids.health());
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        let one = warm(&ids, kind.as_str()).await;
        store.fail_sequence(kind.as_str(), kind);
        drain(&one).await;
        assert!(settled(&ids).await, "{kind}: {}", ids.health());
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_sequence_alone_leaves_the_process_ready() {
    let ids = start(&FaultyStore::new());
    let orders = ids.sequence::<u64>("orders").max(1).await.unwrap();
    assert_eq!(drain(&orders).await, ErrorKind::Exhausted);
    assert!(settled(&ids).await, "{}", ids.health());
}

/// `orders` has ids in memory. For an outage, the process reads the store; a store that only rejects writes
/// counts as failed when no sequence has ids.
#[tokio::test(start_paused = true)]
async fn error_of_the_store_makes_the_process_unready() {
    for (fault, has_others) in [
        (Fault::LostRequest, true),
        (Fault::HangBefore, true),
        (Fault::Refuse(ErrorKind::Denied), false),
        (Fault::Refuse(ErrorKind::StoreViolation), false),
    ] {
        let store = FaultyStore::new();
        let ids = start(&store);
        let (orders, users) = (warm(&ids, "orders").await, warm(&ids, "users").await);
        store.set_faults(Faults::none().always(fault));
        drain(&users).await;
        if !has_others {
            assert!(settled(&ids).await, "{fault:?}: `orders` is served");
            drain(&orders).await;
        }
        assert!(!settled(&ids).await, "{fault:?}: {}", ids.health());
        assert!(!settled(&ids).await, "{fault:?}: {}", ids.health());
        store.set_faults(Faults::none());
        // Without draws, probes find out that the store is back.
        let recovers = async {
            while !ids.health().is_ready() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(MINUTE, recovers).await.expect("ready within a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn overdue_reserve_counts_as_a_failure() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(5)));
    let ids = start(&store);
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    let (mut report, mut empty) = (ids.health(), false);
    for tick in 0..400 {
        if tick == 200 {
            store.set_faults(Faults::none().always(Fault::HangBefore));
        }
        report = ids.health();
        empty |= tokio::time::timeout(Duration::from_millis(10), orders.next()).await.is_err();
        assert!(report.is_ready() || !empty, "unready before memory is empty: {report}");
        if !report.is_ready() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((report.is_ready(), empty), (false, false), "{report}");
    assert!(report.to_string().contains("the store has not answered for "), "{report}");
    let snapshot = orders.snapshot();
    assert_eq!((snapshot.failures, snapshot.failures_in_a_row), (0, 1), "{snapshot:?}");
}

#[tokio::test(start_paused = true)]
async fn removed_sequences_wait_for_a_caller() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let _served = warm(&ids, "served").await;
    let mut removed = Vec::new();
    for n in 0..10 {
        let name = format!("removed-{n}");
        let one = warm(&ids, &name).await;
        ids.admin().remove(&name).await.unwrap();
        assert_eq!(drain(&one).await, ErrorKind::StoreViolation);
        removed.push(one);
    }
    let before = store.requests();
    for _ in 0..600 {
        ids.health();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(store.requests(), before, "no caller, no reserve");
    // A caller in a loop: the delay grows up to 5 s, plus its jitter.
    for _ in 0..600 {
        assert_eq!(removed[0].next().await.unwrap_err().kind(), ErrorKind::StoreViolation);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asked = store.requests() - before;
    assert!((5..=30).contains(&asked), "{asked} reserves in a minute");
    // An administrator of this process creates it again, and discards what the process knew.
    ids.admin().create("removed-0", Bounds::new(1000, 2000).unwrap()).await.unwrap();
    ids.discard("removed-0");
    assert_eq!(removed[0].next().await.unwrap(), 1000);
}

#[tokio::test(start_paused = true)]
async fn report_lists_a_bounded_number_of_sequences() {
    let store = FaultyStore::new();
    let ids = start(&store);
    let mut open = Vec::new();
    for n in 0..200 {
        open.push(ids.sequence::<u64>(format!("tenant-{n}")).max(1).await.unwrap());
        drain(&open[n]).await;
    }
    let text = ids.health().to_string();
    assert!(text.ends_with("; and 180 more") && text.len() < 10_000, "{} bytes", text.len());
}
