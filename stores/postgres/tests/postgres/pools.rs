//! A store over a pool of deadpool-postgres.

use std::time::Duration;

use idmill::{Error, ErrorKind, Status};
use idmill_postgres::deadpool::{Hook, HookError, Manager, Pool, PoolBuilder, Runtime};
use idmill_postgres::driver::{Config, NoTls};
use idmill_postgres::{PostgresOptions, PostgresStore};
use tokio::net::TcpListener;

use crate::{ids, reserve, server};

/// A pool of one connection to this server.
fn pool(server: std::net::SocketAddr) -> PoolBuilder {
    let mut config = Config::new();
    config.host(server.ip().to_string()).port(server.port()).user("postgres").dbname("postgres");
    Pool::builder(Manager::new(config, NoTls)).max_size(1)
}

async fn opened(pool: &Pool) -> Result<PostgresStore, Error> {
    PostgresStore::from_pool(pool.clone(), PostgresOptions::default().timeout(Duration::from_secs(2))).await
}

/// Checks that callers keep waiting, since the store may return at any time.
fn is_transient(error: &Error, message: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(message), "{error}");
    assert!(!error.to_string().contains("busy") && !error.refuses_waiters(), "{error}");
}

#[tokio::test]
async fn exhausted_pool_is_reported_with_its_own_timeout() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address()).runtime(Runtime::Tokio1);
    let pool = pool.wait_timeout(Some(Duration::from_millis(70))).build().unwrap();
    let store = opened(&pool).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (1, 3));
    let held = pool.get().await.unwrap();
    let error = reserve(&store, "s", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("all 1 connections were busy for 70ms"), "{error}");
    assert!(error.refuses_waiters(), "{error}");
    // The caller left a transaction open: a reserve in it would be rolled back.
    held.batch_execute("BEGIN").await.unwrap();
    drop(held);
    assert_eq!(reserve(&store, "s", 3).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (4, 6), "on another connection");
    pool.close();
    let closed = reserve(&store, "s", 3).await.unwrap_err();
    assert_eq!((closed.kind(), closed.status()), (ErrorKind::Closed, Status::Permanent));
}

#[tokio::test]
async fn silent_host_is_not_reported_as_a_busy_pool() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pool = pool(silent.local_addr().unwrap());
    let timed = pool.runtime(Runtime::Tokio1).create_timeout(Some(Duration::from_millis(70)));
    let timed = timed.build().unwrap();
    is_transient(&opened(&timed).await.unwrap_err(), "no connection within 70ms");
}

/// The pool counts a permit for an attempt to connect, as for a connection in use.
#[tokio::test]
async fn attempt_to_connect_is_not_a_connection_in_use() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pool = pool(silent.local_addr().unwrap()).build().unwrap();
    let connects = tokio::spawn({
        let pool = pool.clone();
        async move { drop(pool.get().await) }
    });
    is_transient(&opened(&pool).await.unwrap_err(), "no connection within 1s");
    connects.abort();
}

#[tokio::test]
async fn failed_create_and_recycle_have_their_own_messages() {
    let Some(engine) = server().await else { return };
    let refuses = Hook::sync_fn(|_, _| Err(HookError::message("not this one")));
    let hooked = pool(engine.address()).post_create(refuses).build().unwrap();
    is_transient(&opened(&hooked).await.unwrap_err(), "`post_create` hook failed: not this one");
    let pool = pool(engine.address()).build().unwrap();
    let store = opened(&pool).await.unwrap();
    reserve(&store, "s", 3).await.unwrap();
    // The pool detects that its connection is closed, and cannot open another one.
    engine.kill();
    idmill_testing::eventually("the pool's connection is closed", async || {
        let error = reserve(&store, "s", 3).await.unwrap_err();
        idmill_testing::holds(error.to_string().contains("refused"), error)
    })
    .await;
    is_transient(&reserve(&store, "s", 3).await.unwrap_err(), "refused");
}
