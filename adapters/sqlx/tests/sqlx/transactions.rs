//! Ids inside the caller's transactions.

use std::collections::BTreeSet;
use std::time::Duration;

use idmill_sqlx::driver::{self as sqlx, Acquire, Connection, PgConnection};
use idmill_sqlx::idmill::store::{Bounds, Store};
use idmill_sqlx::idmill::{Error, ErrorKind};
use idmill_sqlx::into_sqlx;
use idmill_sqlx::postgres::{InTransaction, ddl, next_in, reserve_in};

use crate::{admin, ids, name, open, options, pool, reserve, server, until_waiting};

/// Several clients write invoices concurrently, and some roll back: no number is missing or
/// duplicated.
#[tokio::test]
async fn rollbacks_leave_no_gaps() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 4);
    open(&pool).await;
    sqlx::query("CREATE TABLE invoices (number bigint PRIMARY KEY)").execute(&pool).await.unwrap();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for round in 0..25 {
                    let mut tx = pool.begin().await.unwrap();
                    let number: i64 = next_in(&mut tx, "invoices").await.unwrap();
                    let insert = sqlx::query("INSERT INTO invoices VALUES ($1)").bind(number);
                    insert.execute(&mut *tx).await.unwrap();
                    match (round + writer) % 4 {
                        0 => tx.rollback().await.unwrap(),
                        1 => drop(tx),
                        _ => tx.commit().await.unwrap(),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let numbers: Vec<i64> = sqlx::query_scalar("SELECT number FROM invoices").fetch_all(&pool).await.unwrap();
    let count = i64::try_from(numbers.len()).unwrap();
    assert!(count >= 48, "{count}");
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), (1..=count).collect());
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_as_it_was() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 2);
    let store = open(&pool).await;
    store.create(&name("few"), Bounds::new(1, 5).unwrap()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(ids(reserve_in::<u64>(&mut tx, "few", 3).await.unwrap()), (1, 3));
    let error = reserve_in::<u64>(&mut tx, "few", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert_eq!(reserve_in::<u64>(&mut tx, "few", 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(ids(reserve_in::<u64>(&mut tx, "few", 2).await.unwrap()), (4, 5), "all or nothing");
    tx.commit().await.unwrap();
    assert_eq!(reserve(&store, "few", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
    let mut tx = pool.begin().await.unwrap();
    let elsewhere = InTransaction::<i64>::new("s").unwrap().table("missing").unwrap();
    let error = elsewhere.next(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("(`Mode::Create`) creates it"), "{error}");
    assert!(error.to_string().contains("restore it"), "{error}");
    let error = into_sqlx(error);
    let error = error.as_database_error().unwrap();
    assert_eq!(error.code().as_deref(), Some("42P01"), "{error}");
    let kind = error.source().and_then(|source| source.downcast_ref()).map(Error::kind);
    assert_eq!(kind, Some(ErrorKind::NotFound), "{error}");
}

/// A clone in another schema would begin at the first ids again.
#[tokio::test]
async fn cloned_table_on_the_path_is_a_conflict() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 2);
    let store = open(&pool).await;
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (1, 3));
    let mut tx = pool.begin().await.unwrap();
    let clone = "CREATE SCHEMA tenant7; SET LOCAL search_path = tenant7, public; \
                 CREATE TABLE tenant7.idmill_sequences (LIKE public.idmill_sequences INCLUDING ALL)";
    sqlx::raw_sql(clone).execute(&mut *tx).await.unwrap();
    let error = next_in::<i64>(&mut tx, "s").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let named = InTransaction::<i64>::new("s").unwrap().schema("public").unwrap();
    assert_eq!(named.next(&mut tx).await.unwrap(), 4);
}

#[tokio::test]
async fn sequence_with_bounds_is_created_in_a_migrated_table() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 2);
    sqlx::query("CREATE SCHEMA billing").execute(&pool).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    // Create the table as a migration does.
    let ddl: &'static str = ddl(Some("billing"), "numbers").unwrap().leak();
    sqlx::query(ddl).execute(&mut *connection).await.unwrap();
    let numbers =
        InTransaction::<i64>::new("invoices").unwrap().bounds(Bounds::new(2026_0001, 2026_9999).unwrap());
    let numbers = numbers.table("numbers").unwrap().schema("billing").unwrap();
    let mut tx = connection.begin().await.unwrap();
    assert_eq!(numbers.next(&mut tx).await.unwrap(), 2026_0001);
    // A rolled-back savepoint returns its ids.
    let mut inner = tx.begin().await.unwrap();
    assert_eq!(numbers.next(&mut inner).await.unwrap(), 2026_0002);
    inner.rollback().await.unwrap();
    assert_eq!(numbers.next(&mut tx).await.unwrap(), 2026_0002);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn outside_of_a_transaction_nothing_is_taken() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 1);
    let store = open(&pool).await;
    let mut connection = pool.acquire().await.unwrap();
    let error = next_in::<i64>(&mut connection, "invoices").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("&mut *tx"), "{error}");
    assert!(store.inspect(&name("invoices")).await.unwrap().is_none());
}

/// The pool rolls a dropped transaction back, so its number is drawn again.
#[tokio::test]
async fn a_transaction_that_is_dropped_gives_its_number_back() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 1);
    open(&pool).await;
    for _ in 0..3 {
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), 1);
    }
}

/// As documented: the ROLLBACK on a held connection waits for its next use.
#[tokio::test]
async fn dropped_transaction_on_held_connection_keeps_its_lock() {
    let Some(engine) = server().await else { return };
    let (pool, admin) = (pool(&engine, 1), admin(&engine));
    open(&admin).await;
    let mut held = PgConnection::connect_with(&options(&engine)).await.unwrap();
    let mut tx = Connection::begin(&mut held).await.unwrap();
    assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), 1);
    drop(tx);
    let other = tokio::spawn(async move {
        let mut tx = pool.begin().await.unwrap();
        next_in::<i64>(&mut tx, "invoices").await.unwrap()
    });
    until_waiting(&admin).await;
    held.ping().await.unwrap();
    assert_eq!(other.await.unwrap(), 1);
}

#[tokio::test]
async fn a_draw_that_is_dropped_leaves_a_connection_to_roll_back() {
    let Some(engine) = server().await else { return };
    let (pool, admin) = (pool(&engine, 2), admin(&engine));
    open(&admin).await;
    let mut holder = pool.begin().await.unwrap();
    assert_eq!(next_in::<i64>(&mut holder, "invoices").await.unwrap(), 1);
    let mut tx = pool.begin().await.unwrap();
    let dropped = async {
        tokio::select! {
            drawn = next_in::<i64>(&mut tx, "invoices") => panic!("{drawn:?} although another holds the row"),
            () = until_waiting(&admin) => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), dropped).await.unwrap();
    holder.commit().await.unwrap();
    tx.rollback().await.unwrap();
    // The connections are in sync, and no number is missing.
    for expected in 2..6 {
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), expected);
        let answer: i64 =
            sqlx::query_scalar("SELECT $1::bigint").bind(expected).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(answer, expected);
        tx.commit().await.unwrap();
    }
}
