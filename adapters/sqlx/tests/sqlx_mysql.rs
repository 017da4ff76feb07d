//! Tests with a real MariaDB server.
#![cfg(unix)]

use idmill_sqlx::driver::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use idmill_sqlx::driver::{self as sqlx, Connection as _, MySqlConnection, MySqlPool};
use idmill_sqlx::idmill::ErrorKind::{Conflict, Exhausted, InvalidInput, NotFound, StoreViolation};
use idmill_sqlx::idmill::store::Bounds;
use idmill_sqlx::idmill::{Error, ErrorKind};
use idmill_sqlx::mysql::{InTransaction, ddl, next_in, reserve_in};
use idmill_sqlx::{Failover, into_sqlx};
use idmill_testing::engines::Engine;

/// A server with the table of sequences, and a pool of its database `ids`.
async fn server() -> Option<(Engine, MySqlPool)> {
    let engine = Engine::start("mariadb").await?;
    let address = engine.address();
    let options =
        MySqlConnectOptions::new().host(&address.ip().to_string()).port(address.port()).username("root");
    let pool = MySqlPoolOptions::new().max_connections(4).connect_lazy_with(options.database("ids"));
    run(&pool, ddl("idmill_sequences").unwrap().leak()).await;
    Some((engine, pool))
}

async fn run(pool: &MySqlPool, sql: &'static str) {
    sqlx::raw_sql(sql).execute(pool).await.unwrap();
}

fn kind<T>(outcome: Result<T, Error>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

#[tokio::test]
async fn ids_commit_and_roll_back_with_their_rows() {
    let Some((_engine, pool)) = server().await else { return };
    for (commit, expected) in [(false, 1), (true, 1), (false, 4), (true, 4)] {
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), expected);
        assert_eq!(reserve_in::<u32>(&mut tx, "invoices", 2).await.unwrap().len(), 2);
        if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
}

#[tokio::test]
async fn concurrent_transactions_leave_no_gaps() {
    let Some((_engine, pool)) = server().await else { return };
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(next_in::<u64>(&mut tx, "s").await.unwrap(), 1);
    tx.commit().await.unwrap();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut drawn = Vec::new();
                for round in 0..6 {
                    let mut tx = pool.begin().await.unwrap();
                    let id: u64 = next_in(&mut tx, "s").await.unwrap();
                    if round % 3 == 0 {
                        tx.rollback().await.unwrap();
                    } else {
                        tx.commit().await.unwrap();
                        drawn.push(id);
                    }
                }
                drawn
            })
        })
        .collect();
    let mut drawn = Vec::new();
    for writer in writers {
        drawn.extend(writer.await.unwrap());
    }
    drawn.sort_unstable();
    assert_eq!(drawn, (2..2 + 16).collect::<Vec<_>>());
}

#[tokio::test]
async fn draw_respects_bounds_and_the_id_type() {
    let Some((_engine, pool)) = server().await else { return };
    let ids = InTransaction::<i32>::new("short").unwrap().bounds(Bounds::new(5, 14).unwrap());
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(kind(ids.reserve(&mut tx, 0).await), Some(InvalidInput));
    assert_eq!(kind(ids.reserve(&mut tx, 11).await), Some(Exhausted));
    assert_eq!(ids.reserve(&mut tx, 9).await.unwrap().first(), Some(5));
    assert_eq!(ids.next(&mut tx).await.unwrap(), 14);
    assert_eq!(kind(ids.next(&mut tx).await), Some(Exhausted));
    assert_eq!(kind(ids.clone().table("missing").unwrap().next(&mut tx).await), Some(NotFound));
}

#[tokio::test]
async fn row_of_another_server_follows_the_failover_policy() {
    let Some((_engine, pool)) = server().await else { return };
    let ids = |failover| InTransaction::<u64>::new("s").unwrap().failover(failover);
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(ids(Failover::Refuse).next(&mut tx).await.unwrap(), 1);
    tx.commit().await.unwrap();
    for (failover, expected) in
        [(Failover::Refuse, None), (Failover::Skip(100), Some(102)), (Failover::Allow, Some(2))]
    {
        let mut tx = pool.begin().await.unwrap();
        sqlx::raw_sql("UPDATE idmill_sequences SET history = 'server 4711'").execute(&mut *tx).await.unwrap();
        match ids(failover).next(&mut tx).await {
            Ok(id) => assert_eq!(Some(id), expected),
            Err(error) => assert_eq!((error.kind(), expected), (Conflict, None), "{error}"),
        }
        tx.rollback().await.unwrap();
    }
}

/// sqlx still counts a transaction that the server has ended.
#[tokio::test]
async fn draw_outside_a_transaction_takes_no_ids() {
    let Some((_engine, pool)) = server().await else { return };
    let mut connection = pool.acquire().await.unwrap();
    let error = next_in::<u64>(&mut connection, "s").await.unwrap_err();
    assert_eq!(error.kind(), InvalidInput, "{error}");
    assert!(error.to_string().contains("call `begin`"), "{error}");
    for create in [true, false] {
        let mut tx = connection.begin().await.unwrap();
        sqlx::raw_sql("COMMIT").execute(&mut *tx).await.unwrap();
        let error = next_in::<u64>(&mut tx, "s").await.unwrap_err();
        assert_eq!(error.kind(), Conflict, "{error}");
        tx.rollback().await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        assert_eq!(next_in::<u64>(&mut tx, "s").await.unwrap(), if create { 1 } else { 2 });
        tx.commit().await.unwrap();
    }
}

/// The server reports the matched row as changed.
#[tokio::test]
async fn draw_undone_by_a_trigger_is_rejected() {
    let Some((_engine, pool)) = server().await else { return };
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(next_in::<u64>(&mut tx, "s").await.unwrap(), 1);
    tx.commit().await.unwrap();
    run(
        &pool,
        "CREATE TRIGGER keep_next BEFORE UPDATE ON idmill_sequences FOR EACH ROW SET NEW.next = OLD.next",
    )
    .await;
    let mut tx = pool.begin().await.unwrap();
    let error = next_in::<u64>(&mut tx, "s").await.unwrap_err();
    assert_eq!(error.kind(), StoreViolation, "{error}");
    assert!(error.to_string().contains("check triggers"), "{error}");
}

#[tokio::test]
async fn error_in_a_closure_has_the_number_of_the_server() {
    let Some((_engine, pool)) = server().await else { return };
    let mut connection: MySqlConnection = pool.acquire().await.unwrap().detach();
    let drawn = connection
        .transaction(|tx| {
            Box::pin(async move {
                let ids =
                    InTransaction::<u64>::new("s").map_err(into_sqlx)?.table("missing").map_err(into_sqlx)?;
                ids.next(&mut **tx).await.map_err(into_sqlx)
            })
        })
        .await;
    let error: sqlx::Error = drawn.unwrap_err();
    let reported = error.as_database_error().expect("an error of the server");
    assert_eq!(reported.code().as_deref(), Some("42S02"), "{error}");
}
