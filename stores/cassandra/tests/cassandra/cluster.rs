//! Starts a cluster of two datacenters.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use idmill::store::Store;
use idmill::{Error, ErrorKind, Result};
use idmill_cassandra::scylla::client::execution_profile::ExecutionProfile;
use idmill_cassandra::scylla::client::session::Session;
use idmill_cassandra::scylla::client::session_builder::SessionBuilder;
use idmill_cassandra::scylla::frame::types::Consistency;
use idmill_cassandra::scylla::policies::load_balancing::DefaultPolicy;
use idmill_cassandra::{CassandraOptions, CassandraStore};
use idmill_conformance::{Daemon, free_port};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};
use tokio::time::{sleep, timeout};

use crate::statements::Between;
use crate::{request, until};
use idmill_testing::engines;

const DATACENTERS: [&str; 2] = ["dc1", "dc2"];
/// How long nodes may take to find each other. Nodes usually need seconds.
const ACQUAINTED: Duration = Duration::from_secs(60);
const STARTS: usize = 4;

/// State shared by the tests. Each test holds a reference while it waits for its turn, so the nodes start
/// once, and stop after the last test.
#[derive(Default)]
struct Shared {
    /// Runs one test at a time: most tests stop nodes, and a node needs half a gigabyte of memory.
    turn: Arc<Mutex<()>>,
    pair: OnceCell<Ring>,
}

static SHARED: parking_lot::Mutex<Weak<Shared>> = parking_lot::Mutex::new(Weak::new());

impl Shared {
    fn join() -> Arc<Self> {
        let mut shared = SHARED.lock();
        let joined = shared.upgrade().unwrap_or_default();
        *shared = Arc::downgrade(&joined);
        joined
    }
}

/// A node in each of two datacenters, and a keyspace for one test, with one replica in each.
pub(crate) struct Cluster {
    pub(crate) keyspace: &'static str,
    shared: Arc<Shared>,
    _turn: OwnedMutexGuard<()>,
}

impl Cluster {
    pub(crate) async fn start(keyspace: &'static str) -> Option<Self> {
        let shared = Shared::join();
        let turn = shared.turn.clone().lock_owned().await;
        // `Engine::down` only installs the engine, and does not start it.
        engines::Engine::down("cassandra")?;
        // A failed test may have left nodes stopped or paused.
        shared.pair.get_or_init(|| async { Ring::of(&DATACENTERS) }).await.all_up().await;
        Some(Self { keyspace, shared, _turn: turn })
    }

    /// Returns options for a store in this datacenter.
    pub(crate) fn options(&self, dc: usize) -> CassandraOptions {
        let replicas = DATACENTERS.map(|datacenter| (datacenter, 1));
        let options = CassandraOptions::new([self.host(dc)], self.keyspace).create_keyspace(replicas);
        options.datacenter(DATACENTERS[dc]).timeout(Duration::from_secs(4))
    }

    /// Returns options for a store in the first datacenter that reaches the node through a proxy.
    pub(crate) fn behind(&self, proxy: &Between, keyspace: &str) -> CassandraOptions {
        let options = CassandraOptions::new([proxy.address().to_string()], keyspace);
        options
            .datacenter(DATACENTERS[0])
            .translate([(self.address(0), proxy.address())])
            .timeout(Duration::from_secs(60))
    }

    pub(crate) fn geo(&self, dc: usize, range: u64) -> CassandraOptions {
        self.options(dc).geo(DATACENTERS[dc], range).check_every(Duration::from_secs(1))
    }

    pub(crate) async fn open(options: &CassandraOptions) -> CassandraStore {
        let store = until("the store opens", || async { CassandraStore::open(options.clone()).await }).await;
        assert!(!store.capabilities().gives_back);
        store
    }

    /// Opens a geo store in each datacenter, and waits until both grant ids.
    pub(crate) async fn both(&self, range: u64, threshold: u8) -> [CassandraStore; 2] {
        let stores = [0, 1].map(|dc| self.geo(dc, range).threshold(threshold));
        let stores = [Self::open(&stores[0]).await, Self::open(&stores[1]).await];
        for store in &stores {
            until("a datacenter serves", || async { store.reserve(&request("warm up", 1)).await }).await;
        }
        stores
    }

    pub(crate) async fn session(&self) -> Session {
        until("a session is opened", || self.session_at(0)).await
    }
}

impl Deref for Cluster {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        self.shared.pair.get().expect("started")
    }
}

/// Three nodes in each of two datacenters, for one test.
pub(crate) struct Wide {
    ring: Ring,
    _shared: Arc<Shared>,
    _turn: OwnedMutexGuard<()>,
}

impl Wide {
    pub(crate) async fn start() -> Option<Self> {
        let shared = Shared::join();
        let turn = shared.turn.clone().lock_owned().await;
        engines::Engine::down("cassandra")?;
        let ring = Ring::of(&["dc1", "dc1", "dc1", "dc2", "dc2", "dc2"]);
        ring.all_up().await;
        Some(Self { ring, _shared: shared, _turn: turn })
    }
}

impl Deref for Wide {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        &self.ring
    }
}

/// Nodes and their datacenters.
pub(crate) struct Ring {
    datacenters: &'static [&'static str],
    pub(crate) nodes: Vec<Daemon>,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Ring {
    fn of(datacenters: &'static [&'static str]) -> Self {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let numbers = 1..=datacenters.len();
        let nodes = numbers.map(|number| node(port, number, datacenters, dir.path())).collect();
        Self { datacenters, nodes, port, _dir: dir }
    }

    /// Starts all nodes. On a busy machine, nodes that start concurrently sometimes never find each other,
    /// and are then restarted.
    async fn all_up(&self) {
        for _ in 0..STARTS {
            self.start_all().await;
            if timeout(ACQUAINTED, self.all_acquainted()).await.is_ok() {
                return;
            }
            eprintln!("the nodes do not know each other after {ACQUAINTED:?}: they are started again");
            self.nodes.iter().for_each(Daemon::kill);
        }
        panic!("the nodes do not know each other, started {STARTS} times");
    }

    async fn start_all(&self) {
        for node in &self.nodes {
            node.resume();
        }
        for started in join_all(self.nodes.iter().map(Daemon::start)).await {
            started.unwrap();
        }
    }

    /// Waits until the nodes have found each other, which can be after they begin to listen.
    async fn all_acquainted(&self) {
        for node in 0..self.nodes.len() {
            while self.knows_all(node).await.is_err() {
                sleep(Duration::from_millis(200)).await;
            }
        }
    }

    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::from((address(self.port, node + 1), self.port))
    }

    pub(crate) fn host(&self, node: usize) -> String {
        self.address(node).to_string()
    }

    /// Opens a session whose statements run only in this node's datacenter, at LOCAL_QUORUM: the other
    /// datacenter receives the rows of a window later.
    async fn session_at(&self, node: usize) -> Result<Session> {
        let here = DefaultPolicy::builder().prefer_datacenter(self.datacenters[node].to_owned()).build();
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(here)
            .consistency(Consistency::LocalQuorum)
            .build()
            .into_handle();
        let builder = SessionBuilder::new()
            .known_node_addr(self.address(node))
            .default_execution_profile_handle(profile);
        let session = builder.build().await;
        session.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))
    }

    async fn knows_all(&self, node: usize) -> Result<()> {
        let session = self.session_at(node).await?;
        let peers = session.query_unpaged("SELECT peer FROM system.peers_v2", ()).await;
        let peers = peers.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))?;
        let count = peers.into_rows_result().unwrap().rows_num();
        if count + 1 == self.datacenters.len() { Ok(()) } else { Err(ErrorKind::Unavailable.into()) }
    }
}

/// Returns the address on which the engine's script starts node `number`.
fn address(port: u16, number: usize) -> Ipv4Addr {
    let [high, low] = port.to_be_bytes();
    Ipv4Addr::new(127, high, low, u8::try_from(number).unwrap())
}

fn node(port: u16, number: usize, datacenters: &'static [&'static str], dir: &Path) -> Daemon {
    let dir = dir.join(number.to_string());
    Daemon::new(SocketAddr::from((address(port, number), port)), move || {
        let mut command =
            Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/engines/cassandra"));
        command.arg("serve").arg(&dir).arg(port.to_string()).arg(number.to_string()).args(datacenters);
        command
    })
    .deadline(Duration::from_secs(240))
}
