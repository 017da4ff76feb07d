//! Tests the guarantees and the errors of the MongoDB store on a real server.
#![cfg(unix)]

mod commands;
mod designs;
mod errors;
mod fields;
mod ranges;
mod restores;
mod transaction;

use std::net::SocketAddr;

use idmill::store::{Bounds, Grant, Reserve, SequenceInfo, Store};
use idmill::{IdRange, Result, SequenceName};
use idmill_mongodb::MongoStore;
use idmill_mongodb::driver::bson::Document;
use idmill_mongodb::driver::{Client, Collection};
use idmill_testing::engines::Engine;
use idmill_url::Schemes;

const ENGINE: &str = "ferretdb";

fn schemes() -> Schemes {
    Schemes::default().with(idmill_mongodb::SCHEMES).unwrap()
}

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn bounds(start: u64, max: u64) -> Bounds {
    Bounds::new(start, max).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::of::<u64>())
}

/// Returns the URL of the test database. `options` must be empty or begin with `&`.
fn url(address: SocketAddr, options: &str) -> String {
    format!("mongodb://{address}/test?directConnection=true{options}")
}

async fn open(address: SocketAddr) -> MongoStore {
    let store = MongoStore::open(&url(address, "")).await.unwrap();
    // Checked by the trial `rests_are_granted_again`, which a store without give-backs would skip.
    assert!(store.capabilities().gives_back);
    store
}

/// Reserves a range. Returns its start and its length.
async fn reserve(store: &MongoStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

async fn inspect(store: &MongoStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

/// Returns the collection that the store uses.
async fn documents(address: SocketAddr) -> Collection<Document> {
    let client = Client::with_uri_str(url(address, "")).await.unwrap();
    client.database("test").collection("idmill_sequences")
}

/// Asserts that no two ranges overlap. Returns the number of ids, the first id and the last id.
fn disjoint(grants: &[Grant]) -> (u64, u64, u64) {
    let mut ranges: Vec<_> = grants.iter().map(|grant| grant.range).collect();
    ranges.sort_by_key(IdRange::start);
    for pair in ranges.windows(2) {
        assert!(!pair[0].overlaps(&pair[1]), "{pair:?}");
    }
    let ids = ranges.iter().map(IdRange::len).sum();
    (ids, ranges[0].start(), ranges.last().unwrap().last().unwrap())
}

/// Starts a server. Returns `None` if it is not available.
async fn server() -> Option<Engine> {
    Engine::start(ENGINE).await
}
