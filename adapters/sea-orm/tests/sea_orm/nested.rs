//! Nested transactions, which SeaORM turns into savepoints.

use idmill_sea_orm::idmill::ErrorKind;
use idmill_sea_orm::idmill::store::Store;
use idmill_sea_orm::postgres::next_in;
use sea_orm::{ConnectionTrait, DatabaseTransaction, TransactionTrait};

use crate::{name, number, open, server, service};

async fn drawn(tx: &DatabaseTransaction) -> i64 {
    next_in(tx, "invoices").await.unwrap()
}

#[tokio::test]
async fn rolled_back_savepoint_returns_its_ids() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    open(&db).await;
    let tx = db.begin().await.unwrap();
    assert_eq!(drawn(&tx).await, 1);
    let inner = tx.begin().await.unwrap();
    assert_eq!(drawn(&inner).await, 2);
    inner.rollback().await.unwrap();
    assert_eq!(drawn(&tx).await, 2);
    // A dropped savepoint is rolled back before the next statement.
    let inner = tx.begin().await.unwrap();
    assert_eq!(drawn(&inner).await, 3);
    drop(inner);
    assert_eq!(drawn(&tx).await, 3);
    let inner = tx.begin().await.unwrap();
    assert_eq!(drawn(&inner).await, 4);
    inner.commit().await.unwrap();
    tx.commit().await.unwrap();
    let tx = db.begin().await.unwrap();
    assert_eq!(drawn(&tx).await, 5);
}

#[tokio::test]
async fn outer_draw_belongs_to_the_open_savepoint() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    open(&db).await;
    let tx = db.begin().await.unwrap();
    let inner = tx.begin().await.unwrap();
    assert_eq!(drawn(&tx).await, 1);
    inner.rollback().await.unwrap();
    assert_eq!(drawn(&tx).await, 1);
    tx.commit().await.unwrap();
}

/// sqlx rolls the server's transaction back, but SeaORM's object stays usable: each later statement commits
/// immediately.
#[tokio::test]
async fn draw_after_a_failed_nested_begin_is_rejected() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    let store = open(&db).await;
    let tx = db.begin().await.unwrap();
    tx.execute_unprepared("SELECT 1/0").await.unwrap_err();
    tx.begin().await.unwrap_err();
    assert_eq!(number(&tx, "SELECT 7::bigint").await, 7, "it is used as if nothing had happened");
    let error = next_in::<i64>(&tx, "invoices").await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Unavailable, Some("invoices")), "{error}");
    assert!(error.to_string().contains("the transaction was rolled back"), "{error}");
    tx.commit().await.expect("it says so all the same");
    assert!(store.inspect(&name("invoices")).await.unwrap().is_none());
}

#[tokio::test]
async fn draw_after_a_dropped_nested_begin_is_rejected() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    open(&db).await;
    let tx = db.begin().await.unwrap();
    assert_eq!(drawn(&tx).await, 1);
    // Poll `begin` once, and drop it. Retry in the rare case that `begin` completes.
    loop {
        tokio::select! {
            biased;
            begun = tx.begin() => begun.unwrap().commit().await.unwrap(),
            () = std::future::ready(()) => break,
        }
    }
    let error = next_in::<i64>(&tx, "invoices").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the transaction was rolled back"), "{error}");
    tx.rollback().await.unwrap();
    let tx = db.begin().await.unwrap();
    assert_eq!(drawn(&tx).await, 1);
}
