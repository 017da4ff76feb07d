//! SQLite: embedded, one file, several processes.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite};
use idmill_sqlite::{SqliteOptions, SqliteStore};

fn suite() -> Suite {
    Suite::new("sqlite", |endpoint: Endpoint| async move {
        let options = SqliteOptions::new(endpoint.dir().join("ids.db")).busy_timeout(endpoint.timeout());
        Ok(Arc::new(SqliteStore::open_with(options).await?) as Arc<dyn Store>)
    })
}

fn main() {
    idmill_conformance::main([suite()])
}
