//! Redis as a store, and its window in front of stores that need no engine.

use std::sync::Arc;
use std::time::Duration;

use idmill::Result;
use idmill::store::{MemoryStore, Store};
use idmill_conformance::{Endpoint, Suite};
use idmill_redis::RedisStore;
use idmill_redis::window::{RedisWindow, RedisWindowOptions};
use idmill_shared_cache::Tiered;
use idmill_sqlite::SqliteStore;
use idmill_testing::engines::OnDemand;

const BLOCK: u64 = 100;
/// Maximum number of ids by which the store is ahead of the grants: the window, and a void or abandoned block
/// for each kill of the engine or pause of a client in one trial.
const AHEAD: u64 = 16 * BLOCK;
const MANY: &str = "2^64 ids in blocks of 100 would take years";

fn store() -> Suite {
    Suite::new("redis", |endpoint: Endpoint| async move {
        let url = format!("redis://{}?timeout={}ms", endpoint.address(), endpoint.timeout().as_millis());
        Ok(Arc::new(RedisStore::open(&url).await?) as Arc<dyn Store>)
    })
    .engine(OnDemand::new("redis"))
}

fn window(endpoint: &Endpoint) -> Result<RedisWindow> {
    let options = RedisWindowOptions::new(&endpoint.address().to_string())?.block(BLOCK).max_skip(None);
    // A claim must expire within the pauses of the suite.
    let options = options.stub(Duration::from_secs(1)).timeout(endpoint.timeout() / 2);
    RedisWindow::new(options.refresh(Duration::from_millis(100)))
}

fn window_memory() -> Suite {
    let store = MemoryStore::new();
    let connect = move |endpoint: Endpoint| {
        let store: Arc<dyn Store> = Arc::new(store.clone());
        async move { Ok(Arc::new(Tiered::new(store, window(&endpoint)?)) as Arc<dyn Store>) }
    };
    // Grants are in the store behind the window, and do not depend on the window.
    Suite::new("redis-window-memory", connect)
        .engine(OnDemand::new("redis"))
        .window(AHEAD)
        .skip("large_counts", MANY)
        .one_process("the memory of this process is not shared with others")
}

fn window_sqlite() -> Suite {
    Suite::new("redis-window-sqlite", |endpoint: Endpoint| async move {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(endpoint.dir().join("ids.db")).await?);
        Ok(Arc::new(Tiered::new(store, window(&endpoint)?)) as Arc<dyn Store>)
    })
    .engine(OnDemand::new("redis"))
    .window(AHEAD)
    .skip("large_counts", MANY)
    .skip(
        "drawn_by_processes",
        "the trial draws while a process is paused, which holds SQLite's lock if it is in a transaction",
    )
}

fn main() {
    idmill_conformance::main([store(), window_memory(), window_sqlite()])
}
