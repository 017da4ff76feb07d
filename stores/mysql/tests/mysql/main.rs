//! The MySQL store with a real server: guarantees and errors.
#![cfg(unix)]

mod columns;
mod errors;
mod faults;
mod history;
mod ranges;
mod records;
mod restores;
mod servers;
mod silent;
mod transaction;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use idmill::store::{Bounds, Reserve, SequenceInfo, Store};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_mysql::driver::prelude::{FromRow, Queryable};
use idmill_mysql::driver::{Conn, Opts, OptsBuilder, Pool};
use idmill_mysql::{MysqlOptions, MysqlStore};
use idmill_testing::engines::Engine;
use idmill_testing::{eventually, holds};
use idmill_url::Schemes;
use tokio::sync::Mutex;

const ENGINE: &str = "mariadb";

/// A server shared by the tests that do not change its settings or kill it; each test has its own table.
/// Returns `None` if no server is available. The server stops after the last test that uses it.
async fn server() -> Option<Arc<Engine>> {
    static SHARED: Mutex<Weak<Engine>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(running) = shared.upgrade() {
        return Some(running);
    }
    let started = Arc::new(Engine::start(ENGINE).await?);
    *shared = Arc::downgrade(&started);
    Some(started)
}

fn schemes() -> Schemes {
    Schemes::default().with(idmill_mysql::SCHEMES).unwrap()
}

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn bounds(start: u64, max: u64) -> Bounds {
    Bounds::new(start, max).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::of::<u64>())
}

/// `options` begins with `&` or is empty.
fn url(address: SocketAddr, table: &str, options: &str) -> String {
    format!("mysql://root@{address}/ids?table={table}{options}")
}

async fn open(address: SocketAddr, table: &str) -> MysqlStore {
    MysqlStore::open(&url(address, table, "")).await.unwrap()
}

/// The start and the length of the next range.
async fn reserve(store: &MysqlStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

/// Returns the kind of the next reserve's error, whose text must contain `hint`.
async fn refused(store: &MysqlStore, text: &str, hint: &str) -> ErrorKind {
    let error = store.reserve(&request(text, 1)).await.unwrap_err();
    assert!(error.to_string().contains(hint), "{error}");
    error.kind()
}

async fn inspect(store: &MysqlStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

/// The administrator's connection.
async fn root(address: SocketAddr) -> Conn {
    let pool = MysqlOptions::parse(&url(address, "t", "")).unwrap().pool().unwrap();
    pool.get_conn().await.unwrap()
}

async fn run(connection: &mut Conn, statements: &[&str]) {
    for sql in statements {
        connection.query_drop(*sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// A pool as in a user's application.
fn pool(address: SocketAddr, change: impl FnOnce(OptsBuilder) -> OptsBuilder) -> Pool {
    let options = OptsBuilder::from_opts(Opts::default())
        .ip_or_hostname("127.0.0.1")
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(Some("ids"))
        .prefer_socket(false);
    Pool::new(change(options))
}

/// Returns how many statements of these kinds the server has executed for all clients.
async fn counted(connection: &mut Conn) -> [u64; 3] {
    let mut counts = [0; 3];
    for (count, kind) in counts.iter_mut().zip(["update", "select", "insert"]) {
        *count = one::<(String, u64)>(connection, &format!("SHOW GLOBAL STATUS LIKE 'Com_{kind}'")).await.1;
    }
    counts
}

async fn one<T: FromRow + Send + 'static>(connection: &mut Conn, sql: &str) -> T {
    connection.query_first::<T, _>(sql).await.unwrap().expect("a row")
}

/// Waits until a count is at most `most`.
async fn until(connection: &mut Conn, count: &str, most: u64) {
    eventually(&format!("{count} is at most {most}"), async || {
        let seen = one::<u64>(connection, count).await;
        holds(seen <= most, seen)
    })
    .await;
}
