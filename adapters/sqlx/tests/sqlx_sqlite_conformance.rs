//! The conformance suite over a pool of SQLite: one file, several processes.

use std::sync::Arc;

use idmill_conformance::{Endpoint, Suite};
use idmill_sqlx::driver::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use idmill_sqlx::idmill::Result;
use idmill_sqlx::idmill::store::Store;
use idmill_sqlx::sqlite::{SqliteOptions, SqliteStore};

async fn connect(endpoint: Endpoint) -> Result<Arc<dyn Store>> {
    let file = SqliteConnectOptions::new().filename(endpoint.dir().join("ids.db")).create_if_missing(true);
    // The store opens its own connection, and nothing uses this pool.
    let pool = SqlitePoolOptions::new().connect_lazy_with(file);
    let options = SqliteOptions::new().busy_timeout(endpoint.timeout());
    Ok(Arc::new(SqliteStore::with_options(&pool, options).await?))
}

fn main() {
    idmill_conformance::main([Suite::new("sqlx_sqlite", connect)]);
}
