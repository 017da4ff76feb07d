//! The Cassandra store against real nodes in two datacenters: what it promises while one of them is away, and while
//! nobody knows what became of a write.
#![cfg(all(feature = "cassandra", feature = "conformance", unix))]

mod engines;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idmill::conformance::{Daemon, free_port};
use idmill::store::cassandra::scylla::client::execution_profile::ExecutionProfile;
use idmill::store::cassandra::scylla::client::session::Session;
use idmill::store::cassandra::scylla::client::session_builder::SessionBuilder;
use idmill::store::cassandra::scylla::frame::types::Consistency;
use idmill::store::cassandra::scylla::policies::load_balancing::DefaultPolicy;
use idmill::store::cassandra::scylla::statement::unprepared::Statement;
use idmill::store::cassandra::{CassandraOptions, CassandraStore, Serial};
use idmill::store::{Bounds, Change, Grant, Reserve, Store};
use idmill::{Error, ErrorKind, Range, Result, SequenceName};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;

/// One cluster at a time: a node takes half a gigabyte.
static ONE: Mutex<()> = Mutex::const_new(());

const DATACENTERS: [&str; 2] = ["dc1", "dc2"];

/// A node in each of two datacenters, with one replica of everything.
struct Cluster {
    nodes: Vec<Daemon>,
    port: u16,
    _dir: tempfile::TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Cluster {
    async fn start() -> Option<Self> {
        let one = ONE.lock().await;
        // Only for what it fetches: it is never started.
        engines::Engine::down("cassandra")?;
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let nodes = (1..).zip(DATACENTERS).map(|(number, _)| node(port, number, dir.path())).collect();
        let cluster = Self { nodes, port, _dir: dir, _one: one };
        let (first, second) = tokio::join!(cluster.nodes[0].start(), cluster.nodes[1].start());
        first.and(second).unwrap();
        // That nodes listen does not mean that they know each other.
        for (node, _) in (0..).zip(DATACENTERS) {
            until("the nodes know each other", || cluster.knows_all(node)).await;
        }
        Some(cluster)
    }

    /// As seen from a datacenter.
    fn options(&self, dc: usize) -> CassandraOptions {
        let host = format!("{}:{}", address(self.port, dc + 1), self.port);
        let replicas = DATACENTERS.map(|datacenter| (datacenter, 1));
        let options = CassandraOptions::new([host], "ids").create_keyspace(replicas);
        options.datacenter(DATACENTERS[dc]).timeout(Duration::from_secs(4))
    }

    fn geo(&self, dc: usize, range: u64) -> CassandraOptions {
        self.options(dc).geo(DATACENTERS[dc], range).check_every(Duration::from_secs(1))
    }

    async fn open(options: &CassandraOptions) -> CassandraStore {
        until("the store opens", || async { CassandraStore::open(options.clone()).await }).await
    }

    /// A store over the windows of each datacenter, once both serve.
    async fn both(&self, range: u64, threshold: u8) -> [CassandraStore; 2] {
        let stores = [0, 1].map(|dc| self.geo(dc, range).threshold(threshold));
        let stores = [Self::open(&stores[0]).await, Self::open(&stores[1]).await];
        for store in &stores {
            until("a datacenter serves", || async { store.reserve(&request("warm up", 1)).await }).await;
        }
        stores
    }

    async fn session(&self) -> Session {
        self.session_at(0).await.unwrap()
    }

    /// Whose statements that node alone carries out, in agreement with what its own datacenter agreed on: the other learns of
    /// a window's rows later.
    async fn session_at(&self, node: usize) -> Result<Session> {
        let address = SocketAddr::from((address(self.port, node + 1), self.port));
        let here = DefaultPolicy::builder().prefer_datacenter(DATACENTERS[node].to_owned()).build();
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(here)
            .consistency(Consistency::LocalQuorum)
            .build()
            .into_handle();
        let builder =
            SessionBuilder::new().known_node_addr(address).default_execution_profile_handle(profile);
        let session = builder.build().await;
        session.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))
    }

    async fn knows_all(&self, node: usize) -> Result<()> {
        let session = self.session_at(node).await?;
        let peers = session.query_unpaged("SELECT peer FROM system.peers_v2", ()).await;
        let count = peers.unwrap().into_rows_result().unwrap().rows_num();
        if count + 1 == DATACENTERS.len() { Ok(()) } else { Err(ErrorKind::Unavailable.into()) }
    }
}

/// Where the engine's script has node `number` listen.
fn address(port: u16, number: usize) -> Ipv4Addr {
    let [high, low] = port.to_be_bytes();
    Ipv4Addr::new(127, high, low, u8::try_from(number).unwrap())
}

fn node(port: u16, number: usize, dir: &Path) -> Daemon {
    let dir = dir.join(number.to_string());
    Daemon::new(SocketAddr::from((address(port, number), port)), move || {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/engines/cassandra"));
        command.arg("serve").arg(&dir).arg(port.to_string()).arg(number.to_string()).args(DATACENTERS);
        command
    })
    .deadline(Duration::from_secs(240))
}

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

/// What was granted, and what nobody knows of.
#[derive(Default)]
struct Ledger {
    ranges: Vec<Range>,
    doubtful: u64,
}

impl Ledger {
    fn note(&mut self, count: u64, reply: &Result<Grant>) {
        match reply {
            Ok(grant) => self.ranges.push(grant.range),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => self.doubtful += count,
            Err(_) => {}
        }
    }

    fn add(&mut self, other: Self) {
        self.ranges.extend(other.ranges);
        self.doubtful += other.doubtful;
    }

    /// How many ids there are; none is in two ranges.
    fn disjoint(&mut self) -> u64 {
        self.ranges.sort_by_key(Range::start);
        for pair in self.ranges.windows(2) {
            assert!(!pair[0].overlaps(&pair[1]), "handed out twice: {pair:?}");
        }
        self.ranges.iter().map(Range::len).sum()
    }

    /// Every id from 1 to `max` was handed out once, but for those whose reserve nobody knows the outcome of.
    fn accounts_for(&mut self, max: u64) {
        let granted = self.disjoint();
        assert!(self.ranges.iter().all(|range| range.start() >= 1 && range.end() <= u128::from(max) + 1));
        assert!(
            granted + self.doubtful >= max,
            "{granted} of {max} ids, and {} in doubt: ids were lost",
            self.doubtful
        );
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
async fn a_datacenter_that_is_cut_off_goes_on_and_then_says_what_it_waits_for() {
    let Some(cluster) = Cluster::start().await else { return };
    let max = 1_500;
    let [here, there] = cluster.both(60, 50).await;
    here.create(&name("s"), Bounds::new(1, max).unwrap()).await.unwrap();
    let mut ledger = Ledger::default();
    for kill in [true, false] {
        let held = fill(&cluster, &here, &mut ledger).await;
        ledger.note(4, &there.reserve(&request("s", 4)).await);
        if kill {
            cluster.nodes[1].kill();
        } else {
            cluster.nodes[1].pause();
        }
        let doubtful = ledger.doubtful;
        let (granted, error) = use_up(&here, &mut ledger).await;
        let doubtful = ledger.doubtful - doubtful;
        assert!(
            granted + doubtful >= held,
            "{granted} ids while cut off, and {doubtful} in doubt, of the {held} that it had: {error}"
        );
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        assert!(text.contains("needs a quorum over all datacenters, which cannot be reached"), "{text}");
        if kill {
            cluster.nodes[1].start().await.unwrap();
        } else {
            cluster.nodes[1].resume();
        }
        for store in [&here, &there] {
            let grant = until("it goes on", || async {
                let reply = store.reserve(&request("s", 4)).await;
                let lost = reply.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnknownOutcome);
                assert!(!lost, "an unknown outcome here is lost to the ledger: {reply:?}");
                reply
            });
            ledger.note(4, &Ok(grant.await));
        }
    }
    for store in [&here, &there] {
        ledger.add(drain(store, &request("s", 7)).await);
    }
    ledger.accounts_for(max);
}

/// Draws until the window has a preloaded range; returns how many ids it has then.
async fn fill(cluster: &Cluster, store: &CassandraStore, ledger: &mut Ledger) -> u64 {
    let session = cluster.session().await;
    let mut cql = Statement::new(
        "SELECT next, until, preloaded_next, preloaded_until FROM ids.idmill_sequences_windows \
         WHERE name = 's' AND datacenter = 'dc1'",
    );
    cql.set_consistency(Consistency::LocalSerial);
    let begun = Instant::now();
    loop {
        let reply = store.reserve(&request("s", 4)).await;
        ledger.note(4, &reply);
        reply.unwrap();
        let rows = session.query_unpaged(cql.clone(), ()).await.unwrap().into_rows_result().unwrap();
        let (next, until, from, to) =
            rows.first_row::<(Number, Number, Option<Number>, Option<Number>)>().unwrap();
        if let (Some(from), Some(to)) = (from, to) {
            return to_u64(&until) - to_u64(&next) + to_u64(&to) - to_u64(&from);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is ever preloaded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

type Number = idmill::store::cassandra::scylla::value::CqlVarint;

fn to_u64(number: &Number) -> u64 {
    number.as_signed_bytes_be_slice().iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Reserves until the window is said to be used up; returns how many ids were granted before. A node on a busy machine
/// may be late: what comes of that is in doubt, or can be tried again.
async fn use_up(store: &CassandraStore, ledger: &mut Ledger) -> (u64, Error) {
    let (mut granted, begun) = (0, Instant::now());
    loop {
        let reply = store.reserve(&request("s", 4)).await;
        ledger.note(4, &reply);
        match reply {
            Ok(grant) => granted += grant.range.len(),
            Err(error) if error.to_string().contains("datacenter dc1's window is used up") => {
                return (granted, error);
            }
            Err(error) => {
                assert!(error.status() != idmill::Status::Permanent, "{error}");
                println!("after {granted} ids: {error}");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{granted} ids, and no end");
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
