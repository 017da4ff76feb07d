//! The memory store, which is the reference.

use std::sync::Arc;

use idmill::store::{MemoryStore, Store};
use idmill_conformance::Suite;

fn suite() -> Suite {
    let store = MemoryStore::new();
    let connect = move |_| {
        let client: Arc<dyn Store> = Arc::new(store.clone());
        async move { Ok(client) }
    };
    Suite::new("memory", connect).one_process("the memory of this process is not shared with others")
}

fn main() {
    idmill_conformance::main([suite()])
}
