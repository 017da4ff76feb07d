//! The Cassandra store against real nodes in two datacenters: what it promises while one of them is away, and while
//! nobody knows what became of a write.
#![cfg(all(feature = "cassandra", feature = "conformance", unix))]

#[path = "../engines/mod.rs"]
mod engines;

mod cluster;
mod cut_off;
mod ledger;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idmill::store::cassandra::{CassandraOptions, CassandraStore, Serial};
use idmill::store::{Bounds, Change, Reserve, Store};
use idmill::{ErrorKind, Result, SequenceName};
use tokio::task::JoinSet;

use cluster::{Cluster, address};
use ledger::Ledger;

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve { name: name(text), count, ceiling: u64::MAX, create: Bounds::of::<u64>() }
}

/// Tries again while it is said that nothing is lost by that; returns the first success.
async fn until<T, F: Future<Output = Result<T>>>(what: &str, attempt: impl Fn() -> F) -> T {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => {
                assert!(error.status() != idmill::Status::Permanent, "{what}: {error}");
                assert!(
                    begun.elapsed() < Duration::from_secs(120),
                    "{what}, after {:?}: {error}",
                    begun.elapsed()
                );
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Reserves until the sequence is exhausted for this datacenter.
async fn drain(store: &CassandraStore, request: &Reserve) -> Ledger {
    let mut ledger = Ledger::default();
    let begun = Instant::now();
    loop {
        let reply = store.reserve(request).await;
        ledger.note(request.count, &reply);
        match reply {
            Err(error) if error.kind() == ErrorKind::Exhausted => return ledger,
            Err(error) => assert!(error.status() != idmill::Status::Permanent, "{error}"),
            Ok(_) => {}
        }
        assert!(begun.elapsed() < Duration::from_secs(240), "not exhausted after {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_datacenters_hand_out_every_id_once() {
    let Some(cluster) = Cluster::start().await else { return };
    let max = 2_000;
    let stores = cluster.both(150, 50).await;
    stores[0].create(&name("small"), Bounds::new(1, max).unwrap()).await.unwrap();
    let mut clients = JoinSet::new();
    for dc in [0, 1, 0, 1] {
        // Each with a session, and knowledge, of its own: as another process would have.
        let store = Cluster::open(&cluster.geo(dc, 150)).await;
        clients.spawn(async move { drain(&store, &request("small", 7)).await });
    }
    let mut ledger = Ledger::default();
    while let Some(drained) = clients.join_next().await {
        ledger.add(drained.unwrap());
    }
    ledger.accounts_for(max);
    what_is_set_or_removed_is_heard_of_elsewhere(&cluster, &stores).await;
    rows_that_went_back_in_time_are_refused(&cluster, &stores).await;
    tables_keep_to_one_kind_of_agreement(&cluster).await;
    the_last_id_is_handed_out(&stores).await;
    many_make_one_table_at_once(&cluster).await;
}

/// Through nodes that have not heard of each other's table yet.
async fn many_make_one_table_at_once(cluster: &Cluster) {
    for round in 0..3 {
        let table = format!("race_{round}");
        let mut racing = JoinSet::new();
        for racer in 0..6 {
            let options = cluster.options(racer % 2).table(&table);
            racing.spawn(async move {
                let store = Cluster::open(&options).await;
                until("a racer reserves", || async { store.reserve(&request("s", 5)).await }).await
            });
        }
        let mut ledger = Ledger::default();
        while let Some(grant) = racing.join_next().await {
            ledger.note(5, &Ok(grant.unwrap()));
        }
        ledger.accounts_for(30);
    }
}

async fn what_is_set_or_removed_is_heard_of_elsewhere(cluster: &Cluster, stores: &[CassandraStore; 2]) {
    let s = request("moved", 3);
    for store in stores {
        store.reserve(&s).await.unwrap();
    }
    let forwards = Change { next: Some(5_000), ..Change::default() };
    stores[0].set(&s.name, forwards).await.unwrap();
    assert_eq!(stores[0].reserve(&s).await.unwrap().range.start(), 5_000, "at once here");
    let heard = || async {
        let grant = stores[1].reserve(&s).await?;
        if grant.range.start() >= 5_000 { Ok(()) } else { Err(ErrorKind::Unavailable.into()) }
    };
    until("the other datacenter's window is withdrawn", heard).await;
    let before = stores[1].reserve(&s).await.unwrap().identity;
    assert!(stores[0].remove(&s.name).await.unwrap());
    let heard = || async {
        let grant = stores[1].reserve(&s).await?;
        if grant.identity == before { Err(ErrorKind::Unavailable.into()) } else { Ok(grant) }
    };
    let grant = until("the other datacenter hears of the removal", heard).await;
    assert!(grant.range.start() <= 151, "and begins anew: {grant:?}");
    // A client that knows nothing yet asks before it serves.
    let back = Change { next: Some(1), backwards: true, ..Change::default() };
    stores[0].set(&s.name, back).await.unwrap();
    let fresh = Cluster::open(&cluster.geo(1, 150)).await;
    let grant = fresh.reserve(&s).await.unwrap();
    assert_eq!((grant.range.start(), grant.identity.epoch), (1, 1));
}

async fn rows_that_went_back_in_time_are_refused(cluster: &Cluster, stores: &[CassandraStore; 2]) {
    let session = cluster.session().await;
    let run = async |cql: &str| drop(session.query_unpaged(cql, ()).await.unwrap());
    let window = |name: &str| format!("WHERE name = '{name}' AND datacenter = 'dc1'");
    let refused = async |store: &CassandraStore, text: &str| {
        let error = store.reserve(&request(text, 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{text}: {error}");
        assert!(error.to_string().contains(&format!("idmill set {text} --next N")), "{error}");
    };
    // Seen by who knew better.
    stores[0].reserve(&request("known", 100)).await.unwrap();
    run(&format!("UPDATE ids.idmill_sequences_windows SET next = 20 {}", window("known"))).await;
    refused(&stores[0], "known").await;
    // Seen by who never was here before: the global counter has a claim of a window that is not there.
    stores[0].reserve(&request("lost", 1)).await.unwrap();
    run(&format!("DELETE FROM ids.idmill_sequences_windows {}", window("lost"))).await;
    let stranger = Cluster::open(&cluster.geo(0, 150)).await;
    refused(&stranger, "lost").await;
    // Two refills back.
    for _ in 0..5 {
        stores[0].reserve(&request("refills", 150)).await.unwrap();
    }
    let back = "SET generation = 1, next = 151, until = 151, preloaded_next = null, preloaded_until = null";
    run(&format!("UPDATE ids.idmill_sequences_windows {back} {}", window("refills"))).await;
    refused(&stranger, "refills").await;
    // The remedy.
    let forwards = Change { next: Some(10_000), ..Change::default() };
    for text in ["known", "lost", "refills"] {
        stores[1].set(&name(text), forwards).await.unwrap();
        let stranger = Cluster::open(&cluster.geo(0, 150)).await;
        let grant = stranger.reserve(&request(text, 1)).await.unwrap();
        assert!(grant.range.start() >= 10_000, "{text}: {grant:?}");
    }
    // The global counter.
    stores[0].reserve(&request("counter", 1)).await.unwrap();
    run("UPDATE ids.idmill_sequences SET next = 1, claims = {} WHERE name = 'counter'").await;
    let begun = Instant::now();
    let error = loop {
        match stranger.reserve(&request("counter", 40)).await {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(60), "never noticed"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
}

async fn tables_keep_to_one_kind_of_agreement(cluster: &Cluster) {
    let local = |dc: usize| cluster.options(dc).serial(Serial::Local).table("local_ids");
    let first = Cluster::open(&local(0)).await;
    let granted = first.reserve(&request("s", 5)).await.unwrap();
    assert_eq!((granted.range.start(), granted.range.len()), (1, 5));
    for options in [local(1), cluster.options(0).table("local_ids"), cluster.options(0).serial(Serial::Local)]
    {
        let error = CassandraStore::open(options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("would hand out ids twice"), "{error}");
    }
    let error = CassandraStore::open(cluster.options(0).geo("dc3", 5)).await.unwrap_err();
    assert!(error.to_string().contains("no replicas of its own in datacenter \"dc3\""), "{error}");
    let missing = |keyspace: &str| {
        CassandraOptions::new([format!("{}:{}", address(cluster.port, 1), cluster.port)], keyspace)
    };
    let error = CassandraStore::open(missing("nothing")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().contains("CREATE KEYSPACE IF NOT EXISTS \"nothing\" WITH replication"),
        "{error}"
    );
    let error = CassandraStore::open(missing("ids").table("none").create_tables(false)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("CREATE TABLE IF NOT EXISTS \"ids\".\"none\""), "{error}");
}

async fn the_last_id_is_handed_out(stores: &[CassandraStore; 2]) {
    for (text, max) in [("i32", u64::from(i32::MAX.unsigned_abs())), ("u64", u64::MAX)] {
        stores[0].create(&name(text), Bounds::new(max - 9, max).unwrap()).await.unwrap();
        let mut ids = Vec::new();
        for _ in 0..10 {
            let range = stores[0].reserve(&request(text, 1)).await.unwrap().range;
            ids.push(range.start());
        }
        assert_eq!(ids, (max - 9..=max).collect::<Vec<_>>());
        for store in stores {
            assert_eq!(store.reserve(&request(text, 1)).await.unwrap_err().kind(), ErrorKind::Exhausted);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_handed_out_twice_or_lost_while_outcomes_are_unknown() {
    let Some(cluster) = Cluster::start().await else { return };
    let max = 6_000;
    let stores = cluster.both(40, 50).await;
    let flat = [Cluster::open(&cluster.options(0)).await, Cluster::open(&cluster.options(1)).await];
    stores[0].create(&name("windows"), Bounds::new(1, max).unwrap()).await.unwrap();
    stores[0].create(&name("flat"), Bounds::new(1, 1 << 40).unwrap()).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients: JoinSet<(&str, Ledger)> = JoinSet::new();
    for dc in [0, 1, 0, 1] {
        let store = Cluster::open(&cluster.geo(dc, 40)).await;
        clients.spawn(load("windows", store, stop.clone()));
        clients.spawn(load("flat", flat[dc].clone(), stop.clone()));
    }
    for round in 0..6 {
        let node = &cluster.nodes[round % 2];
        node.pause();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        node.resume();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut ledgers: BTreeMap<&str, Ledger> = BTreeMap::new();
    while let Some(done) = clients.join_next().await {
        let (which, ledger) = done.unwrap();
        ledgers.entry(which).or_default().add(ledger);
    }
    for store in &stores {
        let rest = drain(store, &request("windows", 7)).await;
        ledgers.get_mut("windows").unwrap().add(rest);
    }
    for (which, ledger) in &mut ledgers {
        let granted = ledger.disjoint();
        println!("{which}: {granted} ids, {} in doubt", ledger.doubtful);
        assert!(granted > 0);
    }
    assert!(
        ledgers.values().any(|ledger| ledger.doubtful > 0),
        "no outcome was ever unknown: this proves nothing"
    );
    ledgers.get_mut("windows").unwrap().accounts_for(max);
    let flat_info = flat[0].inspect(&name("flat")).await.unwrap().unwrap();
    let ledger = ledgers.get_mut("flat").unwrap();
    let reached = flat_info.next.unwrap() - 1;
    assert!(ledger.disjoint() <= reached && ledger.disjoint() + ledger.doubtful >= reached);
}

async fn load(which: &'static str, store: CassandraStore, stop: Arc<AtomicBool>) -> (&'static str, Ledger) {
    let mut ledger = Ledger::default();
    while !stop.load(Ordering::Relaxed) {
        let reply = store.reserve(&request(which, 3)).await;
        ledger.note(3, &reply);
        if let Err(error) = reply {
            if error.kind() == ErrorKind::Exhausted {
                break;
            }
            assert!(error.status() != idmill::Status::Permanent, "{error}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (which, ledger)
}
