//! Tests failover between servers over one store.

use std::collections::BTreeSet;
use std::sync::Arc;

use idmill::store::{Capabilities, Durability, Grant, MemoryStore, Reserve, Store, StoreFuture};
use idmill::{Error, ErrorKind, Result, Sequences};
use idmill_conformance::Proxy;
use idmill_conformance::proxy::{Fault, Gate, nth};
use idmill_testing::hooked::{Hooked, Hooks};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Running, next, open, reserve};

#[tokio::test]
async fn draws_continue_after_one_of_two_servers_dies() {
    let memory = MemoryStore::new();
    let (mut one, mut other) = (Running::over(memory.clone()).await, Running::over(memory.clone()).await);
    let remote = open(&[one.address, other.address], "timeout=20s").await.unwrap();
    let ids = Sequences::new(remote).unwrap();
    let orders = ids.sequence::<u64>("orders").step(1).watermark(0).await.unwrap();
    let mut issued = BTreeSet::new();
    for round in 0..6 {
        for _ in 0..20 {
            let id = orders.next().await.unwrap();
            assert!(issued.insert(id), "{id} was granted twice");
        }
        // Stop the two servers alternately. Start a replacement over the same store, at the same address.
        let dead = if round % 2 == 0 { &mut one } else { &mut other };
        let began = Running::over(memory.clone()).await;
        let address = std::mem::replace(dead, began).die().await;
        if address == dead.address {
            continue;
        }
        let server = idmill_server::Server::builder(Sequences::new(memory.clone()).unwrap());
        *dead = Running::at(address, server, |server| server).await;
    }
    assert_eq!(issued.len(), 120);
}

#[tokio::test]
async fn unreachable_server_is_skipped_for_the_next_one() {
    let memory = MemoryStore::new();
    let (one, other) = (Running::over(memory.clone()).await, Running::over(memory.clone()).await);
    let remote = open(&[one.address, other.address], "timeout=20s").await.unwrap();
    assert_eq!(reserve(&remote, "s", 1).await.unwrap().range.start(), 1);
    let dead = one.die().await;
    // The outcome is unknown if the client detects the closed connection only after it has sent the request.
    let mut granted = 1;
    for _ in 0..10 {
        match reserve(&remote, "s", 1).await {
            Ok(grant) => granted = grant.range.start(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}"),
        }
    }
    assert!(granted >= 10, "{granted}");
    assert!(open(&[dead, other.address], "timeout=20s").await.is_ok());
    let last = other.die().await;
    for _ in 0..3 {
        // The first call may use a connection that is already broken.
        let error = reserve(&remote, "s", 1).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome), "{error}");
    }
    let error = reserve(&remote, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "certainly not sent: {error}");
    let server = idmill_server::Server::builder(Sequences::new(memory.clone()).unwrap());
    let _again = Running::at(last, server, |server| server).await;
    assert!(reserve(&remote, "s", 1).await.is_ok(), "the store reconnects by itself");
}

/// The call that times out has an unknown outcome. Later calls use the other server.
#[tokio::test]
async fn calls_after_a_timeout_use_the_next_server() {
    let memory = MemoryStore::new();
    let (one, other) = (Running::over(memory.clone()).await, Running::over(memory.clone()).await);
    let proxy = Proxy::start(one.address).await.unwrap();
    let remote = open(&[proxy.address(), other.address], "timeout=5s").await.unwrap();
    reserve(&remote, "s", 1).await.unwrap();
    // Hold the request, so that it never reaches the server.
    proxy.arm(Fault::Hold(Gate::new()), nth(0, |_| true));
    let error = reserve(&remote, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert_eq!(next(&memory, "s").await, Some(2), "the request was also sent to the other server");
    let connections = proxy.connections();
    for start in 2..6 {
        assert_eq!(reserve(&remote, "s", 1).await.unwrap().range.start(), start);
    }
    assert_eq!(proxy.connections(), connections);
}

/// A store that can be made unreachable.
#[derive(Debug, Default)]
struct Away {
    memory: MemoryStore,
    away: AtomicBool,
}

impl Hooks for Away {
    fn inner(&self) -> &dyn Store {
        &self.memory
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            if self.away.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Unavailable, "the database is away"));
            }
            self.memory.reserve(request).await
        })
    }
}

#[tokio::test]
async fn server_with_unreachable_store_is_reported_then_skipped() {
    let memory = MemoryStore::new();
    let away = Arc::new(Hooked(Away { memory: memory.clone(), away: AtomicBool::new(true) }));
    let (one, other) = (Running::over(away).await, Running::over(memory.clone()).await);
    let remote = open(&[one.address, other.address], "timeout=20s").await.unwrap();
    let error = reserve(&remote, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the database is away"), "{error}");
    for start in 1..4 {
        assert_eq!(reserve(&remote, "s", 1).await.unwrap().range.start(), start);
    }
}

/// A memory store that reports disk durability, unlike the store of the second server. The allocator relies
/// on the first server's capabilities for all servers.
#[derive(Debug, Default)]
struct Forgetful(MemoryStore);

impl Hooks for Forgetful {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        self.0.reserve(request)
    }
}

#[tokio::test]
async fn server_with_fewer_capabilities_is_rejected() {
    let (durable, memory) = (Running::over(Hooked(Forgetful::default())).await, MemoryStore::new());
    let lesser = Running::over(memory.clone()).await;
    let remote = open(&[durable.address, lesser.address], "timeout=20s").await.unwrap();
    assert_eq!(remote.capabilities().durability, Durability::Disk);
    reserve(&remote, "s", 1).await.unwrap();
    durable.die().await;
    let mut errors = Vec::new();
    for _ in 0..3 {
        errors.push(reserve(&remote, "s", 1).await.unwrap_err());
    }
    let last = errors.pop().unwrap();
    assert_eq!(last.kind(), ErrorKind::Unsupported, "{last}");
    assert!(last.to_string().contains("at the same store"), "{last}");
    assert_eq!(next(&memory, "s").await, None);
}
