//! Ids inside the caller's transactions.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use idmill_sea_orm::idmill::store::{Bounds, Store};
use idmill_sea_orm::idmill::{Error, ErrorKind};
use idmill_sea_orm::postgres::{InTransaction, ddl, into_db_err, next_in, reserve_in};
use sea_orm::sqlx::error::DatabaseError;
use sea_orm::{
    ConnectionTrait, DbErr, IsolationLevel, RuntimeErr, SqlxError, TransactionError, TransactionTrait,
};

use crate::{admin, ids, invoice, name, number, open, reserve, server, service, until_waiting};

/// Several clients write invoices concurrently, and some roll back: no number is missing or
/// duplicated.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rollbacks_leave_no_gaps() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 4).await;
    open(&db).await;
    invoice::create_table(&db).await;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let db = Arc::clone(&db);
            tokio::spawn(async move {
                for round in 0..25 {
                    let tx = db.begin().await.unwrap();
                    let number = next_in(&tx, "invoices").await.unwrap();
                    invoice::write(&tx, number).await;
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
    let numbers = invoice::numbers(&db).await;
    let count = i64::try_from(numbers.len()).unwrap();
    assert!(count >= 48, "{count}");
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_transaction_of_a_closure_commits_or_rolls_back() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    open(&db).await;
    let failed: Result<i64, TransactionError<Error>> = db
        .transaction(|tx| {
            Box::pin(async move {
                assert_eq!(next_in::<i64>(tx, "invoices").await?, 1);
                Err(Error::new(ErrorKind::InvalidInput, "no"))
            })
        })
        .await;
    assert!(matches!(failed, Err(TransactionError::Transaction(_))), "{failed:?}");
    for expected in 1..4 {
        let drawn = db.transaction(|tx| Box::pin(async move { next_in::<i64>(tx, "invoices").await })).await;
        assert_eq!(drawn.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_as_it_was() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 2).await;
    let store = open(&db).await;
    store.create(&name("few"), Bounds::new(1, 5).unwrap()).await.unwrap();
    let tx = db.begin().await.unwrap();
    assert_eq!(ids(reserve_in::<u64>(&tx, "few", 3).await.unwrap()), (1, 3));
    let error = reserve_in::<u64>(&tx, "few", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert_eq!(reserve_in::<u64>(&tx, "few", 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(ids(reserve_in::<u64>(&tx, "few", 2).await.unwrap()), (4, 5), "all or nothing");
    tx.commit().await.unwrap();
    assert_eq!(reserve(&store, "few", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
}

/// The error has the SQLSTATE and the severity, and the driver's error as its cause.
#[tokio::test]
async fn server_error_keeps_its_sqlstate_and_cause() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 2).await;
    open(&db).await;
    let elsewhere = InTransaction::<i64>::new("s").unwrap().table("missing").unwrap();
    let tx = db.begin().await.unwrap();
    let error = elsewhere.next(&tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("ERROR 42P01: "), "{error}");
    let cause = error.source().and_then(|cause| cause.downcast_ref::<SqlxError>());
    let code = cause.and_then(SqlxError::as_database_error).and_then(DatabaseError::code);
    assert_eq!(code.as_deref(), Some("42P01"));
    let DbErr::Query(RuntimeErr::SqlxError(error)) = into_db_err(error) else {
        panic!("not an error of sqlx")
    };
    let error = error.as_database_error().unwrap();
    assert_eq!(error.code().as_deref(), Some("42P01"), "{error}");
    let kind = error.source().and_then(|source| source.downcast_ref()).map(Error::kind);
    assert_eq!(kind, Some(ErrorKind::NotFound), "{error}");
    // The error has aborted the transaction.
    let error = next_in::<i64>(&tx, "s").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("25P02"), "{error}");
    drop(tx);
    // At a stricter isolation level, the draw fails because another transaction committed first.
    let serializable = Some(IsolationLevel::Serializable);
    let tx = db.begin_with_config(serializable, None).await.unwrap();
    assert_eq!(number(&tx, "SELECT count(*) FROM idmill_sequences").await, 0);
    let other = db.begin().await.unwrap();
    assert_eq!(next_in::<i64>(&other, "s").await.unwrap(), 1);
    other.commit().await.unwrap();
    let error = next_in::<i64>(&tx, "s").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("roll the transaction back"), "{error}");
}

/// The server ends the session, or has already ended it.
#[tokio::test]
async fn a_session_that_ends_has_taken_nothing() {
    let Some(engine) = server().await else { return };
    let (db, admin) = (service(&engine, 1).await, admin(&engine).await);
    open(&admin).await;
    let tx = db.begin().await.unwrap();
    assert_eq!(next_in::<i64>(&tx, "invoices").await.unwrap(), 1);
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'service'";
    admin.execute_unprepared(sql).await.unwrap();
    let error = next_in::<i64>(&tx, "invoices").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("begin it again"), "{error}");
    drop(tx);
    let tx = db.begin().await.unwrap();
    assert_eq!(next_in::<i64>(&tx, "invoices").await.unwrap(), 1);
}

#[tokio::test]
async fn sequence_with_bounds_is_created_in_a_migrated_table() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    db.execute_unprepared("CREATE SCHEMA billing").await.unwrap();
    // Create the table as a migration does.
    db.execute_unprepared(&ddl(Some("billing"), "numbers").unwrap()).await.unwrap();
    let numbers =
        InTransaction::<i64>::new("it's $1 é").unwrap().bounds(Bounds::new(2026_0001, 2026_9999).unwrap());
    let numbers = numbers.table("numbers").unwrap().schema("billing").unwrap();
    for expected in [2026_0001, 2026_0002] {
        let tx = db.begin().await.unwrap();
        assert_eq!(numbers.next(&tx).await.unwrap(), expected);
        tx.commit().await.unwrap();
    }
}

/// The pool rolls a dropped transaction back, so its number is drawn again.
#[tokio::test]
async fn a_transaction_that_is_dropped_gives_its_number_back() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    open(&db).await;
    for _ in 0..3 {
        let tx = db.begin().await.unwrap();
        assert_eq!(next_in::<i64>(&tx, "invoices").await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_draw_that_is_dropped_leaves_a_connection_to_roll_back() {
    let Some(engine) = server().await else { return };
    let (db, admin) = (service(&engine, 2).await, admin(&engine).await);
    open(&admin).await;
    let holder = db.begin().await.unwrap();
    assert_eq!(next_in::<i64>(&holder, "invoices").await.unwrap(), 1);
    let tx = db.begin().await.unwrap();
    let dropped = async {
        tokio::select! {
            drawn = next_in::<i64>(&tx, "invoices") => panic!("{drawn:?} although another holds the row"),
            () = until_waiting(&admin) => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), dropped).await.unwrap();
    holder.commit().await.unwrap();
    tx.rollback().await.unwrap();
    // The connections are in sync, and no number is missing.
    for expected in 2..6 {
        let tx = db.begin().await.unwrap();
        assert_eq!(next_in::<i64>(&tx, "invoices").await.unwrap(), expected);
        assert_eq!(number(&tx, &format!("SELECT {expected}::bigint")).await, expected);
        tx.commit().await.unwrap();
    }
}
