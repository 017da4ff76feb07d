//! A cluster of two datacenters.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use idmill::conformance::{Daemon, free_port};
use idmill::store::Store;
use idmill::store::cassandra::scylla::client::execution_profile::ExecutionProfile;
use idmill::store::cassandra::scylla::client::session::Session;
use idmill::store::cassandra::scylla::client::session_builder::SessionBuilder;
use idmill::store::cassandra::scylla::frame::types::Consistency;
use idmill::store::cassandra::scylla::policies::load_balancing::DefaultPolicy;
use idmill::store::cassandra::{CassandraOptions, CassandraStore};
use idmill::{Error, ErrorKind, Result};
use tokio::sync::{Mutex, MutexGuard};

use crate::{engines, request, until};

/// One cluster at a time: a node takes half a gigabyte.
static ONE: Mutex<()> = Mutex::const_new(());

const DATACENTERS: [&str; 2] = ["dc1", "dc2"];

/// A node in each of two datacenters, with one replica of everything.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Daemon>,
    pub(crate) port: u16,
    _dir: tempfile::TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Cluster {
    pub(crate) async fn start() -> Option<Self> {
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
    pub(crate) fn options(&self, dc: usize) -> CassandraOptions {
        let host = format!("{}:{}", address(self.port, dc + 1), self.port);
        let replicas = DATACENTERS.map(|datacenter| (datacenter, 1));
        let options = CassandraOptions::new([host], "ids").create_keyspace(replicas);
        options.datacenter(DATACENTERS[dc]).timeout(Duration::from_secs(4))
    }

    pub(crate) fn geo(&self, dc: usize, range: u64) -> CassandraOptions {
        self.options(dc).geo(DATACENTERS[dc], range).check_every(Duration::from_secs(1))
    }

    pub(crate) async fn open(options: &CassandraOptions) -> CassandraStore {
        until("the store opens", || async { CassandraStore::open(options.clone()).await }).await
    }

    /// A store over the windows of each datacenter, once both serve.
    pub(crate) async fn both(&self, range: u64, threshold: u8) -> [CassandraStore; 2] {
        let stores = [0, 1].map(|dc| self.geo(dc, range).threshold(threshold));
        let stores = [Self::open(&stores[0]).await, Self::open(&stores[1]).await];
        for store in &stores {
            until("a datacenter serves", || async { store.reserve(&request("warm up", 1)).await }).await;
        }
        stores
    }

    pub(crate) async fn session(&self) -> Session {
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
pub(crate) fn address(port: u16, number: usize) -> Ipv4Addr {
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
