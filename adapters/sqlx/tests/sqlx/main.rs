//! Tests with a real PostgreSQL server, which `ci/engines/postgres` starts for each test.

mod mixed;
mod pools;
mod store;
mod transactions;

use std::time::Duration;

use idmill_sqlx::driver::postgres::{PgConnectOptions, PgPoolOptions};
use idmill_sqlx::driver::{self as sqlx, PgPool};
use idmill_sqlx::idmill::store::{Bounds, Grant, Reserve, Store};
use idmill_sqlx::idmill::{IdRange, Result, SequenceName};
use idmill_sqlx::postgres::{PostgresOptions, PostgresStore};
use idmill_testing::engines::Engine;
use idmill_testing::{eventually, holds};

async fn server() -> Option<Engine> {
    Engine::start("postgres").await
}

fn options(engine: &Engine) -> PgConnectOptions {
    let address = engine.address();
    let options = PgConnectOptions::new_without_pgpass().host(&address.ip().to_string()).port(address.port());
    options.username("postgres").database("postgres").application_name("service")
}

/// The pool of a service, with at most `most` connections.
fn pool(engine: &Engine, most: u32) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(most).acquire_timeout(Duration::from_secs(60));
    pool.connect_lazy_with(options(engine))
}

/// A pool for the queries of the test.
fn admin(engine: &Engine) -> PgPool {
    PgPoolOptions::new().max_connections(2).connect_lazy_with(options(engine).application_name("admin"))
}

fn patient() -> PostgresOptions {
    PostgresOptions::new().timeout(Duration::from_secs(20))
}

async fn open(pool: &PgPool) -> PostgresStore {
    PostgresStore::with_options(pool, patient()).await.unwrap()
}

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(name: &str, count: u64) -> Reserve {
    Reserve::new(self::name(name), count).create(Bounds::of::<u64>())
}

async fn reserve(store: &dyn Store, name: &str, count: u64) -> Result<Grant> {
    store.reserve(&request(name, count)).await
}

/// The first and the last id.
fn ids(range: IdRange) -> (u64, u64) {
    (range.start(), u64::try_from(range.end() - 1).unwrap())
}

/// Returns the number of the service's sessions at the server.
async fn sessions(admin: &PgPool) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'service'";
    sqlx::query_scalar(sql).fetch_one(admin).await.unwrap()
}

/// Waits until a statement of the service waits for a lock.
async fn until_waiting(admin: &PgPool) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'service' AND wait_event_type = 'Lock'";
    eventually("a statement waits for a lock", async || {
        holds(sqlx::query_scalar::<_, i64>(sql).fetch_one(admin).await.unwrap() > 0, "none")
    })
    .await;
}
