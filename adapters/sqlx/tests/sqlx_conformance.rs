//! The conformance suite over a pool of PostgreSQL.

use std::sync::Arc;

use idmill_conformance::{Endpoint, Suite};
use idmill_sqlx::driver::postgres::{PgConnectOptions, PgPoolOptions};
use idmill_sqlx::idmill::Result;
use idmill_sqlx::idmill::store::Store;
use idmill_sqlx::postgres::{PostgresOptions, PostgresStore};
use idmill_testing::engines::OnDemand;

async fn connect(endpoint: Endpoint) -> Result<Arc<dyn Store>> {
    let address = endpoint.address();
    let server = PgConnectOptions::new_without_pgpass()
        .host(&address.ip().to_string())
        .port(address.port())
        .username("postgres")
        .database("postgres");
    // The store opens its own connections, and nothing uses this pool.
    let pool = PgPoolOptions::new().max_connections(8).connect_lazy_with(server);
    let options = PostgresOptions::new().timeout(endpoint.timeout());
    Ok(Arc::new(PostgresStore::with_options(&pool, options).await?))
}

fn main() {
    idmill_conformance::main([Suite::new("sqlx_postgres", connect).engine(OnDemand::new("postgres"))]);
}
