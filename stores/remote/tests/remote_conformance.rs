//! Runs the conformance suite on a store behind one server, and behind two servers over one SQLite file. A
//! server is this executable, started with environment variables.
//!
//! The suite of the database's own store covers faults of the database. Here the servers are killed and
//! paused, and the connections to them are cut.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Result, Sequences};
use idmill_conformance::{Daemon, Endpoint, Engine, Suite, free_port};
use idmill_remote::RemoteStore;
use idmill_server::Server;
use idmill_sqlite::SqliteStore;

/// The environment variables that make this executable a server, with its address and its file.
const ADDRESS: &str = "IDMILL_REMOTE_ADDRESS";
const FILE: &str = "IDMILL_REMOTE_FILE";

/// One server, or two servers over one file. Kills alternate between the servers.
#[derive(Debug)]
struct Servers {
    all: Vec<Daemon>,
    kills: AtomicUsize,
}

/// The directory of the SQLite file. The first server that starts creates the directory: worker processes of
/// the suite start no server, and need none. The servers write to the directory, so they are dropped first.
type Dir = Arc<OnceLock<tempfile::TempDir>>;

impl Servers {
    fn new(how_many: usize) -> Self {
        let dir = Dir::default();
        Self { all: (0..how_many).map(|_| daemon(dir.clone())).collect(), kills: AtomicUsize::new(0) }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.all.iter().map(Daemon::address).collect()
    }
}

fn daemon(dir: Dir) -> Daemon {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    Daemon::new(address, move || {
        let mut command = Command::new(std::env::current_exe().expect("this executable"));
        let dir = dir.get_or_init(|| tempfile::tempdir().expect("a directory"));
        command.env(ADDRESS, address.to_string()).env(FILE, dir.path().join("ids.db"));
        command
    })
}

impl Engine for Servers {
    fn name(&self) -> &'static str {
        "idmill serve"
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn address(&self) -> SocketAddr {
        self.all[0].address()
    }

    fn start(&self) -> StoreFuture<'_, Result<()>> {
        Box::pin(async {
            for server in &self.all {
                server.start().await?;
            }
            Ok(())
        })
    }

    fn kill(&self) {
        self.all[self.kills.fetch_add(1, Ordering::Relaxed) % self.all.len()].kill();
    }

    fn pause(&self) {
        self.all.iter().for_each(Daemon::pause);
    }

    fn resume(&self) {
        self.all.iter().for_each(Daemon::resume);
    }
}

async fn open(servers: &str, timeout: Duration) -> Result<Arc<dyn Store>> {
    let url = format!("idmill://{servers}?timeout={}ms", timeout.as_millis());
    Ok(Arc::new(RemoteStore::open(&url).await?))
}

fn one() -> Suite {
    Suite::new("remote", |endpoint: Endpoint| async move {
        open(&endpoint.address().to_string(), endpoint.timeout()).await
    })
    .engine(Servers::new(1))
}

/// The name of a file with the second server's address, for worker processes of the suite.
const SECOND: &str = "second";

fn two() -> Suite {
    let servers = Servers::new(2);
    let [first, second] = servers.addresses()[..] else { unreachable!("two") };
    Suite::new("remote-two", move |endpoint: Endpoint| async move {
        let second = second_of(endpoint.dir(), endpoint.address() == first, second);
        open(&format!("{},{second}", endpoint.address()), endpoint.timeout()).await
    })
    .engine(servers)
    .skip("unreachable", "the second server is reached, and grants")
}

/// Returns the second server's address. The main process of the suite writes it to a file for the worker
/// processes, whose own ports differ.
fn second_of(dir: &Path, is_suite: bool, own: SocketAddr) -> SocketAddr {
    let file = dir.join(SECOND);
    if is_suite {
        std::fs::write(&file, own.to_string()).expect("writes");
    }
    let written = std::fs::read_to_string(&file).expect("the suite connects first");
    written.parse().expect("an address")
}

/// Runs a server like `idmill serve --create`, over this file.
async fn serve(address: SocketAddr, file: PathBuf) {
    let store = SqliteStore::open(file).await.expect("it opens");
    let sequences = Sequences::new(store).expect("in a runtime");
    let server = Server::builder(sequences).resp(address).bind().await.expect("the port is free");
    server.run(std::future::pending()).await;
}

fn main() {
    if let (Ok(address), Ok(file)) = (std::env::var(ADDRESS), std::env::var(FILE)) {
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        return runtime.block_on(serve(address.parse().expect("an address"), file.into()));
    }
    idmill_conformance::main([one(), two()])
}
