//! Runs the conformance suite on windows in front of stores that need no engine.

use std::sync::Arc;
use std::time::Duration;

use idmill::Result;
use idmill::store::{MemoryStore, Store};
use idmill_conformance::{Endpoint, Suite};
use idmill_memcached::{MemcachedOptions, MemcachedWindow};
use idmill_shared_cache::Tiered;
use idmill_sqlite::SqliteStore;
use idmill_testing::engines::OnDemand;

const BLOCK: u64 = 100;
/// Maximum number of ids by which the stored sequence may be ahead of the grants. The store is ahead by the
/// ids in the window, and by an evicted or abandoned block for each kill of the engine or pause of a client
/// in one trial.
const AHEAD: u64 = 16 * BLOCK;
const MANY: &str = "2^64 ids in blocks of 100 would take years";

fn window(endpoint: &Endpoint) -> Result<MemcachedWindow> {
    let options = MemcachedOptions::new(endpoint.address().to_string()).block(BLOCK).max_skip(None);
    // The stub must expire within the pauses of the suite.
    let options = options.stub(Duration::from_secs(2)).timeout(endpoint.timeout() / 2);
    MemcachedWindow::new(options.refresh(Duration::from_millis(100)))
}

fn memory() -> Suite {
    let store = MemoryStore::new();
    let connect = move |endpoint: Endpoint| {
        let store: Arc<dyn Store> = Arc::new(store.clone());
        async move { Ok(Arc::new(Tiered::new(store, window(&endpoint)?)) as Arc<dyn Store>) }
    };
    // Grants are durable in the store behind the window, and do not depend on the cache.
    Suite::new("memcached-memory", connect)
        .engine(OnDemand::new("memcached"))
        .window(AHEAD)
        .skip("large_counts", MANY)
        .one_process("the memory of this process is not shared with others")
}

fn sqlite() -> Suite {
    Suite::new("memcached-sqlite", |endpoint: Endpoint| async move {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(endpoint.dir().join("ids.db")).await?);
        Ok(Arc::new(Tiered::new(store, window(&endpoint)?)) as Arc<dyn Store>)
    })
    .engine(OnDemand::new("memcached"))
    .window(AHEAD)
    .skip("large_counts", MANY)
    .skip(
        "drawn_by_processes",
        "the trial draws while a process is paused, which holds SQLite's lock if it is in a transaction",
    )
}

fn main() {
    idmill_conformance::main([memory(), sqlite()])
}
