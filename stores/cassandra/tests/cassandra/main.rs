//! Tests the Cassandra store on real nodes in two datacenters, also while one datacenter is unreachable and
//! after writes of unknown outcome.
#![cfg(unix)]

mod cluster;
mod cut_off;
mod encrypted;
mod frozen;
mod ledger;
mod stale;
mod statements;
mod unaware;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::Cluster;
use idmill::store::{Bounds, Change, Grant, Page, Reserve, Store};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_cassandra::scylla::client::session::Session;
use idmill_cassandra::scylla::response::query_result::QueryResult;
use idmill_cassandra::scylla::statement::unprepared::Statement;
use idmill_cassandra::{CassandraOptions, CassandraStore, Serial};
use ledger::Ledger;
use tokio::task::JoinSet;

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::of::<u64>())
}

/// Retries while errors are not permanent. Returns the first success.
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

/// Runs an idempotent statement.
async fn query(session: &Session, cql: impl Into<Statement>) -> QueryResult {
    let cql = cql.into();
    let answered = || async {
        let answer = session.query_unpaged(cql.clone(), ()).await;
        answer.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))
    };
    until(&cql.contents, answered).await
}

/// Creates a sequence, with retries. `AlreadyExists` is accepted, because an earlier attempt may have
/// created the sequence.
async fn create(store: &CassandraStore, text: &str, bounds: Bounds) {
    let created = || async {
        match store.create(&name(text), bounds).await {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    };
    until("it is created", created).await;
}

/// Reserves until ids are granted. Adds every attempt to the ledger, because on a busy machine an attempt
/// can have an unknown outcome.
async fn insist(store: &CassandraStore, request: &Reserve, ledger: &mut Ledger) -> Grant {
    let begun = Instant::now();
    loop {
        let reply = store.reserve(request).await;
        ledger.note(request.count, &reply);
        match reply {
            Ok(grant) => return grant,
            Err(error) => {
                assert!(error.status() != idmill::Status::Permanent, "{error}");
                assert!(begun.elapsed() < Duration::from_secs(120), "nothing is granted: {error}");
            }
        }
    }
}

/// Returns the permanent error, and retries on any other error.
async fn refusal<T, F: Future<Output = Result<T>>>(what: &str, attempt: impl Fn() -> F) -> Error {
    let refused = || async {
        match attempt().await {
            Err(error) if error.status() == idmill::Status::Permanent => Ok(error),
            Err(error) => Err(error),
            Ok(_) => panic!("{what}: not rejected"),
        }
    };
    until(what, refused).await
}

/// Reserves until the sequence is exhausted in this datacenter.
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
async fn two_datacenters_grant_every_id_once() {
    let Some(cluster) = Cluster::start("ids").await else { return };
    let max = 2_000;
    let stores = cluster.both(150, 50).await;
    create(&stores[0], "small", Bounds::new(1, max).unwrap()).await;
    let mut clients = JoinSet::new();
    for dc in [0, 1, 0, 1] {
        // Each store has its own session and state, like a separate process.
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
    rows_that_cannot_be_read_hide_no_other(&cluster, &stores[0]).await;
    tables_keep_to_one_kind_of_agreement(&cluster).await;
    the_last_id_is_handed_out(&stores).await;
    many_make_one_table_at_once(&cluster).await;
}

/// Creates the same table at once through nodes that have not received each other's table yet.
async fn many_make_one_table_at_once(cluster: &Cluster) {
    for round in 0..3 {
        let table = format!("race_{round}");
        let mut racing = JoinSet::new();
        for racer in 0..6 {
            let options = cluster.options(racer % 2).table(&table);
            racing.spawn(async move {
                let (store, mut ledger) = (Cluster::open(&options).await, Ledger::default());
                insist(&store, &request("s", 5), &mut ledger).await;
                ledger
            });
        }
        let mut ledger = Ledger::default();
        while let Some(raced) = racing.join_next().await {
            ledger.add(raced.unwrap());
        }
        assert_eq!(ledger.disjoint(), 30);
        ledger.accounts_for(30 + ledger.doubtful);
    }
}

async fn what_is_set_or_removed_is_heard_of_elsewhere(cluster: &Cluster, stores: &[CassandraStore; 2]) {
    let (s, mut ledger) = (request("moved", 3), Ledger::default());
    for store in stores {
        insist(store, &s, &mut ledger).await;
    }
    let forwards = Change::new().next(5_000);
    until("it is set", || stores[0].set(&s.name, forwards)).await;
    let start = insist(&stores[0], &s, &mut ledger).await.range.start();
    assert!((5_000..5_100).contains(&start), "the change applies immediately in this datacenter: {start}");
    let heard = || async {
        let grant = stores[1].reserve(&s).await?;
        if grant.range.start() >= 5_000 { Ok(()) } else { Err(ErrorKind::Unavailable.into()) }
    };
    until("the other datacenter's window is withdrawn", heard).await;
    let before = insist(&stores[1], &s, &mut ledger).await.identity;
    until("it is removed", || stores[0].remove(&s.name, None)).await;
    let heard = || async {
        let grant = stores[1].reserve(&s).await?;
        if grant.identity == before { Err(ErrorKind::Unavailable.into()) } else { Ok(grant) }
    };
    let grant = until("the other datacenter sees the removal", heard).await;
    assert!(grant.range.start() <= 151, "the new sequence starts at its first id: {grant:?}");
    // A new client checks the era before it grants ids.
    let back = Change::new().next(1).backwards(true);
    until("it is set back", || stores[0].set(&s.name, back)).await;
    let fresh = Cluster::open(&cluster.geo(1, 150)).await;
    let grant = insist(&fresh, &s, &mut ledger).await;
    assert!(grant.range.start() < 100 && grant.identity.epoch >= 1, "{grant:?}");
}

async fn rows_that_went_back_in_time_are_refused(cluster: &Cluster, stores: &[CassandraStore; 2]) {
    let session = cluster.session().await;
    let run = async |cql: &str| drop(query(&session, cql).await);
    let window = |name: &str| format!("WHERE name = '{name}' AND datacenter = 'dc1'");
    let mut ledger = Ledger::default();
    let refused = async |store: &CassandraStore, text: &str| {
        let error = refusal(text, || async { store.reserve(&request(text, 1)).await }).await;
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{text}: {error}");
        assert!(error.to_string().contains(&format!("idmill set {text} --next N")), "{error}");
    };
    // A process that saw a later state detects the setback.
    insist(&stores[0], &request("known", 100), &mut ledger).await;
    run(&format!("UPDATE ids.idmill_sequences_windows SET next = 20 {}", window("known"))).await;
    refused(&stores[0], "known").await;
    // A new process also detects it: the global counter has a claim for a window that is missing.
    insist(&stores[0], &request("lost", 1), &mut ledger).await;
    run(&format!("DELETE FROM ids.idmill_sequences_windows {}", window("lost"))).await;
    let stranger = Cluster::open(&cluster.geo(0, 150)).await;
    refused(&stranger, "lost").await;
    // Set the window back by more than two refills.
    for _ in 0..5 {
        insist(&stores[0], &request("refills", 150), &mut ledger).await;
    }
    let back = "SET generation = 1, next = 151, until = 151, preloaded_next = null, preloaded_until = null";
    run(&format!("UPDATE ids.idmill_sequences_windows {back} {}", window("refills"))).await;
    refused(&stranger, "refills").await;
    // Apply the remedy from the error message: raise the next id.
    let forwards = Change::new().next(10_000);
    for text in ["known", "lost", "refills"] {
        until("it is set", || async { stores[1].set(&name(text), forwards).await }).await;
        let stranger = Cluster::open(&cluster.geo(0, 150)).await;
        let grant = insist(&stranger, &request(text, 1), &mut ledger).await;
        assert!(grant.range.start() >= 10_000, "{text}: {grant:?}");
    }
    // Set the global counter back, and remove its claims.
    insist(&stores[0], &request("counter", 1), &mut ledger).await;
    run("UPDATE ids.idmill_sequences SET next = 1, claims = {} WHERE name = 'counter'").await;
    // The lowered counter is detected only after the window has granted its remaining ids.
    let noticed = || async {
        match stranger.reserve(&request("counter", 40)).await {
            Ok(_) => Err(ErrorKind::Unavailable.into()),
            Err(error) if error.status() == idmill::Status::Permanent => Ok(error),
            Err(error) => Err(error),
        }
    };
    let error = until("it is noticed", noticed).await;
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
}

async fn rows_that_cannot_be_read_hide_no_other(cluster: &Cluster, store: &CassandraStore) {
    let session = cluster.session().await;
    for text in ["row-a", "row-b", "row-c"] {
        create(store, text, Bounds::of::<u64>()).await;
    }
    for change in ["SET format = 2 WHERE name = 'row-b'", "SET next = 0 WHERE name = 'row-c'"] {
        drop(query(&session, format!("UPDATE ids.idmill_sequences {change}")).await);
    }
    let listing = until("they are listed", || async { store.list(&Page::of("row-")).await }).await;
    let good: Vec<_> = listing.sequences.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(good, ["row-a"]);
    let mut bad: Vec<_> =
        listing.unreadable.iter().map(|row| (row.name.as_str(), row.error.kind())).collect();
    bad.sort_unstable_by_key(|(name, _)| *name);
    assert_eq!(bad, [("row-b", ErrorKind::Unsupported), ("row-c", ErrorKind::StoreViolation)]);
}

async fn tables_keep_to_one_kind_of_agreement(cluster: &Cluster) {
    let local = |dc: usize| cluster.options(dc).serial(Serial::Local).table("local_ids");
    let first = Cluster::open(&local(0)).await;
    let granted = insist(&first, &request("s", 5), &mut Ledger::default()).await;
    assert_eq!(granted.range.len(), 5);
    for options in [local(1), cluster.options(0).table("local_ids"), cluster.options(0).serial(Serial::Local)]
    {
        let error = refusal("local", || CassandraStore::open(options.clone())).await;
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("mixed levels repeat ids"), "{error}");
    }
    let error = refusal("dc3", || CassandraStore::open(cluster.options(0).geo("dc3", 5))).await;
    assert!(error.to_string().contains("no replicas in datacenter \"dc3\""), "{error}");
    let missing = |keyspace: &str| CassandraOptions::new([cluster.host(0)], keyspace);
    let error = refusal("no keyspace", || CassandraStore::open(missing("nothing"))).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().contains("CREATE KEYSPACE IF NOT EXISTS \"nothing\" WITH replication"),
        "{error}"
    );
    let tableless = || CassandraStore::open(missing("ids").table("none").create_tables(false));
    let error = refusal("no table", tableless).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("CREATE TABLE IF NOT EXISTS \"ids\".\"none\""), "{error}");
}

async fn the_last_id_is_handed_out(stores: &[CassandraStore; 2]) {
    for (text, max) in [("i32", u64::from(i32::MAX.unsigned_abs())), ("u64", u64::MAX)] {
        create(&stores[0], text, Bounds::new(max - 9, max).unwrap()).await;
        let mut ledger = drain(&stores[0], &request(text, 1)).await;
        assert!(ledger.disjoint() <= 10 && ledger.disjoint() + ledger.doubtful >= 10);
        assert!(ledger.doubtful > 0 || ledger.reaches(max), "the last id is not handed out");
        let error = refusal("exhausted", || async { stores[1].reserve(&request(text, 1)).await }).await;
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_outcomes_neither_repeat_nor_lose_ids() {
    let Some(cluster) = Cluster::start("unknown").await else { return };
    let max = 6_000;
    let stores = cluster.both(40, 50).await;
    let flat = [Cluster::open(&cluster.options(0)).await, Cluster::open(&cluster.options(1)).await];
    create(&stores[0], "windows", Bounds::new(1, max).unwrap()).await;
    create(&stores[0], "flat", Bounds::new(1, 1 << 40).unwrap()).await;
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
        // Use larger steps than the clients to save time: each reserve waits for the disk several times.
        let rest = drain(store, &request("windows", 40)).await;
        ledgers.get_mut("windows").unwrap().add(rest);
    }
    for (which, ledger) in &mut ledgers {
        let granted = ledger.disjoint();
        println!("{which}: {granted} ids, {} in doubt", ledger.doubtful);
        assert!(granted > 0);
    }
    assert!(ledgers.values().any(|ledger| ledger.doubtful > 0), "no outcome was unknown: nothing was tested");
    ledgers.get_mut("windows").unwrap().accounts_for(max);
    let inspected = || async { flat[0].inspect(&name("flat")).await };
    let flat_info = until("it is inspected", inspected).await.unwrap();
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
