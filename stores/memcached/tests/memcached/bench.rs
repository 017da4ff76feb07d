//! Test helpers: a server, a durable store, and windows.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idmill::store::{Bounds, Reserve, Store};
use idmill::{Error, IdRange, SequenceName};
use idmill_memcached::{MemcachedOptions, MemcachedWindow};
use idmill_shared_cache::Tiered;
use idmill_shared_cache::cache::Layout;
use idmill_testing::Wait;
use idmill_testing::engines::Engine;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::gate::Gate;

pub(crate) type Tier = Tiered<Arc<dyn Store>, MemcachedWindow>;

/// Starts the server. If it is not available, ends the test.
macro_rules! server {
    () => {
        match idmill_testing::engines::Engine::start("memcached").await {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;

pub(crate) fn name() -> SequenceName {
    SequenceName::new("orders of the day").unwrap()
}

pub(crate) fn request(count: u64) -> Reserve {
    Reserve::new(name(), count).create(Bounds::of::<u64>())
}

/// Returns options with a window size that does not depend on the rate, and a timeout for a busy server.
pub(crate) fn options(server: &Engine, block: u64) -> MemcachedOptions {
    let options = MemcachedOptions::new(server.address().to_string()).block(block).max_skip(None);
    options.stub(Duration::from_secs(2)).timeout(Duration::from_secs(30))
}

/// Returns options for a window behind a gate. The timeouts are long enough for a test that holds commands.
pub(crate) fn gated(gate: &Gate, block: u64) -> MemcachedOptions {
    let minute = Duration::from_secs(60);
    MemcachedOptions::new(gate.address())
        .block(block)
        .max_skip(None)
        .stub(minute)
        .timeout(minute)
        .refresh(minute)
}

/// Returns a tier with its own window, like a separate process.
pub(crate) fn tier<S: Store + Clone + 'static>(store: &S, options: MemcachedOptions) -> Tier {
    Tiered::new(Arc::new(store.clone()) as Arc<dyn Store>, MemcachedWindow::new(options).unwrap())
}

/// Draws ids, and retries after transient errors.
pub(crate) async fn draw(tier: &Tier, count: u64) -> IdRange {
    let wait = Wait::new("a draw succeeds");
    loop {
        match tier.reserve(&request(count)).await {
            Ok(grant) => return grant.range,
            Err(error) if passes(&error) => wait.again(&error).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

pub(crate) fn passes(error: &Error) -> bool {
    error.status() != idmill::Status::Permanent
}

/// All ids that were handed out. Adding a duplicate panics.
#[derive(Debug, Default)]
pub(crate) struct Issued(pub(crate) BTreeSet<u64>);

impl Issued {
    pub(crate) fn add(&mut self, range: IdRange) {
        for id in range {
            assert!(self.0.insert(id), "{id} was handed out twice");
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Returns the key of the sequence's item.
pub(crate) async fn key(store: &impl Store) -> String {
    let identity = store.inspect(&name()).await.unwrap().expect("it was created").identity;
    format!("idmill:2:{:x}:{}:orders%20of%20the%20day", identity.incarnation, identity.epoch)
}

/// A plain connection to the server, to evict items and read values.
pub(crate) struct Raw(BufReader<TcpStream>);

impl Raw {
    pub(crate) async fn open(server: &Engine) -> Self {
        Self::connect(server.address()).await
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    /// Increments a shared clock and returns its value.
    pub(crate) async fn tick(&mut self) -> u64 {
        let (_, value) = self.ask("ma clock N0 J1 D1 v").await;
        value.parse().unwrap()
    }

    /// Sends one command. Returns the reply line and the value, which is empty if there is none.
    pub(crate) async fn ask(&mut self, command: &str) -> (String, String) {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let (mut line, mut value) = (String::new(), String::new());
        self.0.read_line(&mut line).await.unwrap();
        if line.starts_with("VA ") {
            self.0.read_line(&mut value).await.unwrap();
        }
        (line.trim().to_owned(), value.trim().to_owned())
    }

    /// Evicts an item. Returns its value.
    pub(crate) async fn evict(&mut self, key: &str) -> Option<String> {
        let begun = Instant::now();
        loop {
            let (line, value) = self.ask(&format!("mg {key} v c")).await;
            let cas = line.split(' ').find_map(|flag| flag.strip_prefix('c'))?;
            // Deleting by cas ensures that no draw came in between.
            let (deleted, _) = self.ask(&format!("md {key} C{cas}")).await;
            if deleted == "HD" {
                return Some(value);
            }
            // Do not sleep: a draw would come in between again.
            assert!(begun.elapsed() < Duration::from_secs(60), "{key} cannot be evicted: {line}, {deleted}");
        }
    }
}

/// Returns the number of ids that are left in an item.
pub(crate) fn left(number: &str) -> u64 {
    number.parse().ok().and_then(Layout::decode).map_or(0, |standing| standing.left)
}
