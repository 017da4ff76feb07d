//! Tests with a real PostgreSQL server, which `ci/engines/postgres` starts for each test.

mod elsewhere;
mod invoice;
mod keys;
mod mixed;
mod nested;
mod store;
mod transactions;

use std::sync::Arc;
use std::time::Duration;

use idmill_sea_orm::idmill::store::{Bounds, Grant, Reserve, Store};
use idmill_sea_orm::idmill::{IdRange, Result, SequenceName};
use idmill_sea_orm::postgres::{PostgresOptions, PostgresStore};
use idmill_testing::engines::Engine;
use idmill_testing::{eventually, holds};
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, FromQueryResult, Statement,
};

async fn server() -> Option<Engine> {
    Engine::start("postgres").await
}

fn options(engine: &Engine, name: &str) -> ConnectOptions {
    let url = format!("postgres://postgres@{}/postgres?application_name={name}", engine.address());
    let mut options = ConnectOptions::new(url);
    options.sqlx_logging(false).acquire_timeout(Duration::from_secs(60));
    options
}

/// The connection of a service, with at most `most` pooled connections. The `Arc` is needed, since SeaORM's
/// connection is not `Clone` with the feature `mock`.
async fn service(engine: &Engine, most: u32) -> Arc<DatabaseConnection> {
    Arc::new(Database::connect(options(engine, "service").max_connections(most).to_owned()).await.unwrap())
}

/// A connection for the queries of the test.
async fn admin(engine: &Engine) -> Arc<DatabaseConnection> {
    Arc::new(Database::connect(options(engine, "admin").max_connections(2).to_owned()).await.unwrap())
}

fn patient() -> PostgresOptions {
    PostgresOptions::new().timeout(Duration::from_secs(20))
}

async fn open(db: &DatabaseConnection) -> PostgresStore {
    PostgresStore::with_options(db, patient()).await.unwrap()
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

#[derive(FromQueryResult)]
struct Number {
    number: i64,
}

/// Returns the number in the only row of an answer.
async fn number(db: &impl ConnectionTrait, sql: &str) -> i64 {
    let statement = Statement::from_string(DbBackend::Postgres, format!("SELECT ({sql}) AS number"));
    Number::find_by_statement(statement).one(db).await.unwrap().unwrap().number
}

/// Waits until a statement of the service waits for a lock.
async fn until_waiting(admin: &DatabaseConnection) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'service' AND wait_event_type = 'Lock'";
    eventually("a statement waits for a lock", async || holds(number(admin, sql).await > 0, "none")).await;
}
