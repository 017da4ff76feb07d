//! The connections that the store uses, and their state after a call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idmill_sqlx::driver::postgres::PgPoolOptions;
use idmill_sqlx::driver::{self as sqlx, Executor as _};
use idmill_sqlx::idmill::store::Store;
use idmill_sqlx::idmill::{ErrorKind, Sequences};
use idmill_sqlx::postgres::{PostgresOptions, PostgresStore, next_in};
use idmill_testing::engines::Engine;

use crate::{admin, ids, name, open, options, patient, pool, reserve, server, sessions, until_waiting};

/// Handlers that wait for an id hold every connection of the pool.
#[tokio::test]
async fn refill_succeeds_while_the_pool_is_exhausted() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 1);
    let store: Arc<dyn Store> = Arc::new(open(&pool).await);
    let sequences = Sequences::new(store).unwrap();
    let mut tx = pool.begin().await.unwrap();
    let orders = sequences.sequence::<i64>("orders").await.unwrap();
    let draw = async {
        for expected in 1..5_000 {
            assert_eq!(orders.next().await.unwrap(), expected);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), draw).await.expect("it draws while the pool is exhausted");
    assert_eq!((pool.size(), pool.num_idle()), (1, 0));
    tx.execute("SELECT 1").await.unwrap();
    tx.rollback().await.unwrap();
    sequences.close().await;
}

#[tokio::test]
async fn the_deadlock_of_a_shared_pool_is_reported() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 2);
    let shared = PostgresOptions::new().timeout(Duration::from_secs(4)).share_pool();
    let store = PostgresStore::with_options(&pool, shared).await.unwrap();
    assert_eq!(ids(reserve(&store, "orders", 3).await.unwrap().range), (1, 3));
    let (one, two) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    let error = reserve(&store, "orders", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.refuses_waiters(), "those who wait hold the connections");
    for said in ["all 2 connections", "2s", "share_pool", "max_connections"] {
        assert!(error.to_string().contains(said), "{error}");
    }
    // Nothing was sent: no id is missing.
    drop((one, two));
    assert_eq!(ids(reserve(&store, "orders", 3).await.unwrap().range), (4, 6));
}

/// The pool times out before the store does.
#[tokio::test]
async fn an_impatient_shared_pool_is_exhausted_as_well() {
    let Some(engine) = server().await else { return };
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(3));
    let pool = pool.connect_lazy_with(options(&engine));
    let store = PostgresStore::with_options(&pool, patient().share_pool()).await.unwrap();
    let _held = pool.begin().await.unwrap();
    let error = reserve(&store, "orders", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("all 1 connections") && error.to_string().contains("3s"), "{error}");
}

#[tokio::test]
async fn shared_pool_serves_all_calls_without_extra_connections() {
    let Some(engine) = server().await else { return };
    let (pool, admin) = (pool(&engine, 2), admin(&engine));
    let store = Arc::new(PostgresStore::with_options(&pool, patient().share_pool()).await.unwrap());
    let all: Vec<_> = (0..20)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { reserve(&*store, &format!("s{}", number % 3), 5).await.unwrap() })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    assert_eq!(store.list_all().await.unwrap().len(), 3);
    assert!(sessions(&admin).await <= 2);
    assert!(store.remove(&name("s0"), None).await.unwrap());
}

/// A client ran BEGIN manually, and returned the connection.
#[tokio::test]
async fn a_transaction_left_open_in_a_shared_pool_is_noticed() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 1);
    let store = PostgresStore::with_options(&pool, patient().share_pool()).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (1, 1));
    pool.execute("BEGIN").await.unwrap();
    let error = reserve(&store, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // The connection with the open transaction was closed.
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (2, 2));
}

/// A dropped call closes its connection, so that its answer is not read by another call.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_connection_half_used() {
    let Some(engine) = server().await else { return };
    let admin = admin(&engine);
    for shared in [false, true] {
        let pool = pool(&engine, 1);
        let options = PostgresOptions::new().timeout(Duration::from_secs(120));
        let options = if shared { options.share_pool() } else { options };
        let store = PostgresStore::with_options(&pool, options).await.unwrap();
        reserve(&store, "s", 1).await.unwrap();
        let mut holder = admin.begin().await.unwrap();
        holder.execute("SELECT FROM idmill_sequences WHERE name = 's' FOR UPDATE").await.unwrap();
        let waiting = {
            let store = store.clone();
            tokio::spawn(async move { reserve(&store, "s", 5).await })
        };
        // Sleep past the brief lock timeout, after which the statement is sent again.
        until_waiting(&admin).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        until_waiting(&admin).await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        // The row is still locked, but the only connection is free.
        let began = Instant::now();
        pool.execute("SELECT 1").await.unwrap();
        assert_eq!(ids(reserve(&store, "other", 2).await.unwrap().range).1 % 2, 0);
        assert!(began.elapsed() < Duration::from_secs(30), "{shared}: {:?}", began.elapsed());
        holder.rollback().await.unwrap();
        // The dropped call may have reserved ids; later ids must still increase.
        let first = ids(reserve(&store, "s", 1).await.unwrap().range).0;
        let then = ids(reserve(&store, "s", 1).await.unwrap().range).0;
        assert!(first < then, "{first} {then}");
        store.remove(&name("s"), None).await.unwrap();
    }
}

/// The store opens connections in the same way as the pool.
#[tokio::test]
async fn after_connect_of_the_pool_applies_to_the_store() {
    let Some(engine) = server().await else { return };
    let admin = admin(&engine);
    admin.execute("CREATE SCHEMA billing").await.unwrap();
    let pool = PgPoolOptions::new().max_connections(1).after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET search_path = billing").await.map(drop) })
    });
    let pool = pool.connect_lazy_with(options(&engine));
    let store = open(&pool).await;
    reserve(&store, "invoices", 4).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), 5);
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM billing.idmill_sequences").fetch_one(&admin).await.unwrap();
    assert_eq!(rows, 1);
}

/// PgBouncer in transaction mode usually runs the next statement in another session.
#[tokio::test]
async fn ids_are_unique_behind_a_pooler() {
    let Some(engine) = server().await else { return };
    let port = engine.address().port().to_string();
    let Some(pooler) = Engine::set("pgbouncer", idmill_conformance::free_port(), &[&port]) else { return };
    pooler.restart().await;
    // PgBouncer does not support this setting.
    let through = options(&pooler).extra_float_digits(None);
    let pools: Vec<_> =
        (0..6).map(|_| PgPoolOptions::new().max_connections(1).connect_lazy_with(through.clone())).collect();
    let crowd: Vec<_> = pools
        .into_iter()
        .map(|pool| {
            tokio::spawn(async move {
                let store = open(&pool).await;
                let mut drawn = Vec::new();
                for round in 0..25 {
                    drawn.extend(reserve(&store, "s", 3).await.unwrap().range.iter());
                    let mut tx = pool.begin().await.unwrap();
                    let id = next_in::<u64>(&mut tx, "s").await.unwrap();
                    if round % 2 == 0 {
                        tx.commit().await.unwrap();
                        drawn.push(id);
                    }
                }
                drawn
            })
        })
        .collect();
    let mut drawn = Vec::new();
    for one in crowd {
        drawn.extend(one.await.unwrap());
    }
    drawn.sort_unstable();
    assert_eq!(drawn, (1..=6 * (25 * 3 + 13)).collect::<Vec<_>>());
    let through = PgPoolOptions::new().connect_lazy_with(options(&engine));
    assert!(sessions(&through).await <= 3, "there was no pooler in between");
}

/// Does what `#[sqlx::test]` does for tests in parallel: their pools share the connections of one parent.
#[tokio::test]
async fn stores_take_no_connections_of_a_parent_pool() {
    let Some(engine) = server().await else { return };
    let parent = PgPoolOptions::new().max_connections(20).connect_lazy_with(options(&engine));
    let tests: Vec<_> = (0..25)
        .map(|test| {
            let child = PgPoolOptions::new().max_connections(5).parent(parent.clone());
            let pool = child.connect_lazy_with(options(&engine));
            tokio::spawn(async move {
                let store = open(&pool).await;
                assert_eq!(ids(reserve(&store, &format!("s{test}"), 1).await.unwrap().range), (1, 1));
                (store, pool)
            })
        })
        .collect();
    let mut open = Vec::new();
    for test in tests {
        open.push(test.await.unwrap());
    }
}

/// Does what `#[sqlx::test]` does at its end: closes the pool, and drops the database.
#[tokio::test]
async fn connections_end_with_the_pool_when_asked_to() {
    let Some(engine) = server().await else { return };
    let admin = admin(&engine);
    sqlx::query("CREATE DATABASE brief").execute(&admin).await.unwrap();
    let pool = PgPoolOptions::new().connect_lazy_with(options(&engine).database("brief"));
    let store = PostgresStore::with_options(&pool, patient().close_with_pool()).await.unwrap();
    let sequences = Sequences::new(store.clone()).unwrap();
    let orders = sequences.sequence::<i64>("orders").await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    let _spawned = tokio::spawn(async move {
        let _kept = sequences;
        std::future::pending::<()>().await;
    });
    pool.close().await;
    sqlx::query("DROP DATABASE brief").execute(&admin).await.unwrap();
    let closed = reserve(&store, "orders", 1).await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed, "{closed}");
}
