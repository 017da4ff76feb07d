//! Ids inside the caller's transactions.

use std::collections::BTreeSet;
use std::error::Error as _;

use idmill_diesel::diesel;
use idmill_diesel::diesel::result::{DatabaseErrorKind, Error as DieselError};
use idmill_diesel::diesel::sql_types::BigInt;
use idmill_diesel::diesel_async::{AsyncConnection, RunQueryDsl};
use idmill_diesel::idmill::ErrorKind;
use idmill_diesel::idmill::store::{Bounds, Store};
use idmill_diesel::into_diesel;
use idmill_diesel::postgres::{InTransaction, ddl, next_in, reserve_in};

use crate::{AnyError, connect, ids, name, numbers, open, pool, reserve, run, server};

/// Several clients write invoices concurrently, and some roll back: no number is missing or
/// duplicated.
#[tokio::test]
async fn rollbacks_leave_no_gaps() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    let (pool, mut admin) = (pool(&engine, 4), connect(&engine).await);
    run(&mut admin, "CREATE TABLE invoices (number bigint PRIMARY KEY)").await;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for round in 0..25 {
                    let gives_up = (round + writer) % 4 == 0;
                    let mut conn = pool.get().await.unwrap();
                    let outcome = conn.transaction(async |conn| {
                        let number: i64 = next_in(conn, "invoices").await?;
                        let insert = diesel::sql_query("INSERT INTO invoices VALUES ($1)");
                        insert.bind::<BigInt, _>(number).execute(conn).await?;
                        if gives_up { Err(AnyError::from("gives up")) } else { Ok(()) }
                    });
                    assert_eq!(outcome.await.is_err(), gives_up);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let numbers = numbers(&mut admin, "SELECT number FROM invoices").await;
    assert_eq!(numbers.len(), 4 * 25 - 25);
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), (1..=75).collect());
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_as_it_was() {
    let Some(engine) = server().await else { return };
    let (store, mut conn) = (open(&engine).await, connect(&engine).await);
    store.create(&name("few"), Bounds::new(1, 5).unwrap()).await.unwrap();
    let drawn = conn.transaction(async |conn| {
        assert_eq!(ids(reserve_in::<u64>(conn, "few", 3).await.unwrap()), (1, 3));
        let error = reserve_in::<u64>(conn, "few", 3).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert_eq!(reserve_in::<u64>(conn, "few", 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        for wrong in ["", "a\0b"] {
            let error = next_in::<u64>(conn, wrong).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        assert_eq!(ids(reserve_in::<u64>(conn, "few", 2).await.unwrap()), (4, 5), "all or nothing");
        Ok::<_, DieselError>(())
    });
    drawn.await.unwrap();
    assert_eq!(reserve(&store, "few", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
}

/// diesel has no kind for 42P01, 25P02 and 42501.
#[tokio::test]
async fn errors_without_a_diesel_kind_are_classified_by_message() {
    let Some(engine) = server().await else { return };
    let (_, mut conn) = (open(&engine).await, connect(&engine).await);
    let elsewhere = InTransaction::<i64>::new("s").unwrap().table("missing").unwrap();
    let drawn = conn.transaction(async |conn| {
        let error = elsewhere.next(conn).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("42P01"), "{error}");
        // The error has aborted the transaction.
        let error = next_in::<i64>(conn, "s").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("25P02"), "{error}");
        Err::<(), AnyError>("rolls back".into())
    });
    drawn.await.unwrap_err();
    run(&mut conn, "CREATE ROLE nobody; GRANT USAGE ON SCHEMA public TO nobody; SET ROLE nobody").await;
    let drawn = conn.transaction(async |conn| Ok::<_, AnyError>(next_in::<i64>(conn, "s").await?));
    let error = drawn.await.unwrap_err();
    let error = error.downcast_ref::<idmill_diesel::idmill::Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    run(&mut conn, "RESET ROLE").await;
    let mut read_only = conn.build_transaction().read_only();
    let drawn = read_only.run(async |conn| {
        let error = next_in::<i64>(conn, "s").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("READ WRITE"), "{error}");
        Err::<(), AnyError>("rolls back".into())
    });
    drawn.await.unwrap_err();
    // A transaction whose error is diesel's has diesel's kind, or else idmill's error.
    let mut read_only = conn.build_transaction().read_only();
    let drawn = read_only.run(async |conn| next_in::<i64>(conn, "s").await.map_err(into_diesel));
    let error = drawn.await.unwrap_err();
    let DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, said) = error else {
        panic!("{error}")
    };
    assert!(said.message().contains("READ WRITE"), "{said:?}");
    let drawn = conn.transaction(async |conn| elsewhere.next(conn).await.map_err(into_diesel));
    let error = drawn.await.unwrap_err();
    let DieselError::QueryBuilderError(inner) = error else { panic!("{error}") };
    let inner: &idmill_diesel::idmill::Error = inner.downcast_ref().unwrap();
    assert_eq!(inner.kind(), ErrorKind::NotFound, "{inner}");
    assert!(inner.source().is_some_and(<dyn std::error::Error>::is::<DieselError>), "{inner:?}");
    // The connection is still usable.
    let drawn = conn.transaction(async |conn| Ok::<_, AnyError>(next_in::<i64>(conn, "s").await?));
    assert_eq!(drawn.await.unwrap(), 1);
}

#[tokio::test]
async fn sequence_with_bounds_is_created_in_a_migrated_table() {
    let Some(engine) = server().await else { return };
    let mut conn = connect(&engine).await;
    run(&mut conn, "CREATE SCHEMA billing").await;
    run(&mut conn, &ddl(Some("billing"), "numbers").unwrap()).await;
    let sequence = InTransaction::<i64>::new("invoices").unwrap();
    let sequence = sequence.bounds(Bounds::new(2026_0001, 2026_9999).unwrap());
    let sequence = sequence.table("numbers").unwrap().schema("billing").unwrap();
    let drawn = conn.transaction(async |conn| {
        assert_eq!(sequence.next(conn).await?, 2026_0001);
        // A rolled-back savepoint returns its ids.
        let inner = conn.transaction(async |conn| {
            assert_eq!(sequence.next(conn).await?, 2026_0002);
            Err::<(), AnyError>("rolls back".into())
        });
        inner.await.unwrap_err();
        assert_eq!(sequence.next(conn).await?, 2026_0002);
        Ok::<_, AnyError>(())
    });
    drawn.await.unwrap();
}

#[tokio::test]
async fn outside_of_a_transaction_nothing_is_taken() {
    let Some(engine) = server().await else { return };
    let (store, pool) = (open(&engine).await, pool(&engine, 1));
    let mut conn = pool.get().await.unwrap();
    let error = next_in::<i64>(&mut conn, "invoices").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("conn.transaction("), "{error}");
    assert!(store.inspect(&name("invoices")).await.unwrap().is_none());
}
