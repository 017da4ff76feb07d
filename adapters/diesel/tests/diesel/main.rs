//! Tests with a real PostgreSQL server, which `ci/engines/postgres` starts for each test.

#[cfg(feature = "sync")]
mod blocking;
mod dropped;
mod mixed;
mod transactions;

use idmill_diesel::diesel::sql_types::BigInt;
use idmill_diesel::diesel::{self, QueryableByName};
use idmill_diesel::diesel_async::pooled_connection::AsyncDieselConnectionManager;
use idmill_diesel::diesel_async::pooled_connection::deadpool::Pool;
use idmill_diesel::diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use idmill_diesel::idmill::store::{Bounds, Grant, Reserve, Store};
use idmill_diesel::idmill::{self, IdRange, SequenceName};
use idmill_diesel::postgres::PostgresStore;
use idmill_testing::Wait;
use idmill_testing::engines::Engine;

/// The error type of a service.
type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn server() -> Option<Engine> {
    Engine::start("postgres").await
}

fn url(engine: &Engine) -> String {
    format!("postgres://postgres@{}/postgres", engine.address())
}

/// The pool of a service, with at most `most` connections.
fn pool(engine: &Engine, most: usize) -> Pool<AsyncPgConnection> {
    Pool::builder(AsyncDieselConnectionManager::new(url(engine))).max_size(most).build().unwrap()
}

async fn connect(engine: &Engine) -> AsyncPgConnection {
    AsyncPgConnection::establish(&url(engine)).await.unwrap()
}

async fn open(engine: &Engine) -> PostgresStore {
    PostgresStore::open(&format!("{}?timeout=20s", url(engine))).await.unwrap()
}

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

async fn reserve(store: &dyn Store, name: &str, count: u64) -> idmill::Result<Grant> {
    let create = Some(Bounds::of::<u64>());
    store.reserve(&Reserve::new(self::name(name), count).create(create)).await
}

/// The first and the last id.
fn ids(range: IdRange) -> (u64, u64) {
    (range.start(), u64::try_from(range.end() - 1).unwrap())
}

async fn run(connection: &mut AsyncPgConnection, sql: &str) {
    connection.batch_execute(sql).await.unwrap();
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// Returns the column `number` of each row.
async fn numbers(connection: &mut AsyncPgConnection, sql: &str) -> Vec<i64> {
    let rows: Vec<Number> = diesel::sql_query(sql).load(connection).await.unwrap();
    rows.into_iter().map(|row| row.number).collect()
}

/// Waits until a statement waits for a lock.
async fn until_waiting(admin: &mut AsyncPgConnection) {
    let sql = "SELECT count(*) AS number FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let wait = Wait::new("a statement waits for a lock");
    while numbers(admin, sql).await[0] == 0 {
        wait.again(&"none").await;
    }
}
