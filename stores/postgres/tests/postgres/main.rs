//! The PostgreSQL stores with a real server, which `ci/engines/postgres` starts for each test.

mod changes;
mod columns;
mod cost;
mod durable;
mod encrypted;
mod errors;
mod history;
mod locks;
mod native;
mod places;
mod pooled;
#[cfg(feature = "deadpool")]
mod pools;
mod records;
mod restores;
mod rows;
mod silent;
mod transactions;
mod values;

use idmill::store::{Bounds, Grant, Identity, Reserve, SequenceInfo, Store};
use idmill::{IdRange, Result, SequenceName};
use idmill_postgres::PostgresStore;
use idmill_postgres::driver::{Client, NoTls};
use idmill_testing::engines::Engine;
use idmill_testing::{eventually, holds};
use idmill_url::Schemes;

async fn server() -> Option<Engine> {
    Engine::start("postgres").await
}

fn schemes() -> Schemes {
    Schemes::default().with(idmill_postgres::SCHEMES).unwrap()
}

fn url(engine: &Engine, options: &str) -> String {
    format!("postgres://postgres@{}/postgres?timeout=20s{options}", engine.address())
}

async fn open(engine: &Engine) -> PostgresStore {
    PostgresStore::open(&url(engine, "")).await.unwrap()
}

/// A session outside the store.
async fn client(engine: &Engine) -> Client {
    let address = engine.address();
    let text = format!("host={} port={} user=postgres dbname=postgres", address.ip(), address.port());
    let (client, connection) = idmill_postgres::driver::connect(&text, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
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

async fn inspect(store: &dyn Store, name: &str) -> SequenceInfo {
    store.inspect(&self::name(name)).await.unwrap().unwrap()
}

fn identity(info: &SequenceInfo) -> Identity {
    info.identity
}

/// Waits until new sessions have this value of a setting.
async fn until_set(engine: &Engine, setting: &str, value: &str) {
    let sql = format!("SELECT current_setting('{setting}')");
    eventually(&format!("{setting} is {value}"), async || {
        let seen: String = client(engine).await.query_one(&sql, &[]).await.unwrap().get(0);
        holds(seen == value, seen)
    })
    .await;
}

/// Waits until this number of statements wait for a lock.
async fn until_waiting(client: &Client, count: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually(&format!("{count} statements wait for a lock"), async || {
        let waiting: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        holds(waiting >= count, waiting)
    })
    .await;
}
