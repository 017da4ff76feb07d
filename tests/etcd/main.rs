//! The etcd store against real members: what it promises, and what it makes of trouble on the way.
#![cfg(all(feature = "etcd", feature = "conformance", unix))]

#[path = "../engines/mod.rs"]
mod engines;

mod contention;

use std::sync::{Arc, Weak};
use std::time::Duration;

use idmill::store::etcd::{EtcdOptions, EtcdStore};
use idmill::store::{Bounds, Grant, Reserve, SequenceInfo, Store};
use idmill::{Result, SequenceName};
use tokio::sync::Mutex;

use engines::Engine;

/// Long enough on a busy machine, unless a test wants it to be too short.
const TIMEOUT: Duration = Duration::from_secs(60);

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve { name: name(text), count, ceiling: u64::MAX, create: Bounds::of::<u64>() }
}

async fn reserve(store: &EtcdStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

async fn inspect(store: &EtcdStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

/// One etcd for all tests that leave it alone; each has a prefix of its own there.
async fn shared() -> Option<Arc<Engine>> {
    static RUNNING: Mutex<Weak<Engine>> = Mutex::const_new(Weak::new());
    let mut running = RUNNING.lock().await;
    if let Some(engine) = running.upgrade() {
        return Some(engine);
    }
    let engine = Arc::new(Engine::start("etcd").await?);
    *running = Arc::downgrade(&engine);
    Some(engine)
}

fn options(engine: &Engine, place: &str) -> EtcdOptions {
    EtcdOptions::new([engine.address().to_string()]).prefix(format!("/{place}/")).timeout(TIMEOUT)
}

async fn open(engine: &Engine, place: &str) -> EtcdStore {
    EtcdStore::open_with(options(engine, place)).await.unwrap()
}

/// Panics if an id is in two of the ranges; returns how many ids there are.
fn disjoint(grants: &[Grant]) -> u64 {
    let mut ranges: Vec<_> = grants.iter().map(|grant| grant.range).collect();
    ranges.sort_by_key(idmill::Range::start);
    for pair in ranges.windows(2) {
        assert!(!pair[0].overlaps(&pair[1]), "{pair:?}");
    }
    ranges.iter().map(idmill::Range::len).sum()
}
