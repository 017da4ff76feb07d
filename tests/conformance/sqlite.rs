//! SQLite: embedded, one file, several processes.

use std::sync::Arc;

use idmill::conformance::{Endpoint, Suite};
use idmill::store::Store;
use idmill::store::sqlite::SqliteStore;

pub(crate) fn suite() -> Suite {
    Suite::new("sqlite", |endpoint: Endpoint| async move {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(endpoint.dir().join("ids.db")).await?);
        Ok(store)
    })
}
