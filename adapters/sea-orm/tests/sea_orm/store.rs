//! The store, which idmill-sqlx08 implements and tests more thoroughly.

use std::sync::Arc;
use std::time::Duration;

use idmill_sea_orm::Mode;
use idmill_sea_orm::idmill::store::{Bounds, Change, Store};
use idmill_sea_orm::idmill::{ErrorKind, Sequences};
use idmill_sea_orm::postgres::PostgresStore;
use sea_orm::{ConnectionTrait, Database, TransactionTrait};

use crate::{admin, ids, name, number, open, options, patient, request, reserve, server, service};

#[tokio::test]
async fn every_call_reaches_the_table() {
    let Some(engine) = server().await else { return };
    let store = open(&*service(&engine, 1).await).await;
    assert!(store.capabilities().batches && store.capabilities().gives_back);
    assert_eq!(ids(reserve(&store, "a", 5).await.unwrap().range), (1, 5));
    let batch = store.reserve_many(&[request("a", 2), request("it's", 3)]).await;
    let granted: Vec<_> = batch.into_iter().map(|grant| ids(grant.unwrap().range)).collect();
    assert_eq!(granted, [(6, 7), (1, 3)]);
    store.create(&name("c"), Bounds::new(10, 20).unwrap()).await.unwrap();
    let error = store.create(&name("c"), Bounds::new(10, 20).unwrap()).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::AlreadyExists, Some("c")), "{error}");
    store.set(&name("c"), Change::new().next(15)).await.unwrap();
    assert_eq!(store.inspect(&name("c")).await.unwrap().unwrap().next, Some(15));
    let names: Vec<_> =
        store.list_all().await.unwrap().iter().map(|info| info.name.as_str().to_owned()).collect();
    assert_eq!(names, ["a", "c", "it's"]);
    assert!(store.remove(&name("a"), None).await.unwrap());
    assert!(store.inspect(&name("a")).await.unwrap().is_none());
    assert!(format!("{store:?}").contains("idmill_sequences"), "{store:?}");
}

#[tokio::test]
async fn opening_makes_no_more_than_it_may() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let error = PostgresStore::with_options(&db, patient().mode(mode)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    PostgresStore::from_connection(&db).await.unwrap();
    let reader = PostgresStore::with_options(&db, patient().mode(Mode::ReadOnly)).await.unwrap();
    assert_eq!(reserve(&reader, "s", 1).await.unwrap_err().kind(), ErrorKind::Denied);
}

/// SeaORM sets the search path on each new connection.
#[tokio::test]
async fn the_search_path_is_that_of_the_connection() {
    let Some(engine) = server().await else { return };
    let admin = admin(&engine).await;
    admin.execute_unprepared("CREATE SCHEMA billing").await.unwrap();
    let options = options(&engine, "service").set_schema_search_path("billing").to_owned();
    let store = open(&Database::connect(options).await.unwrap()).await;
    reserve(&store, "s", 1).await.unwrap();
    assert_eq!(number(&*admin, "SELECT count(*) FROM billing.idmill_sequences").await, 1);
}

/// Handlers that wait for an id hold every connection of the pool; then the pool is closed.
#[tokio::test]
async fn refill_succeeds_while_the_pool_is_exhausted() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    let store: Arc<dyn Store> = Arc::new(open(&db).await);
    let sequences = Sequences::new(store).unwrap();
    let tx = db.begin().await.unwrap();
    let orders = sequences.sequence::<i64>("orders").await.unwrap();
    let draw = async {
        for expected in 1..5_000 {
            assert_eq!(orders.next().await.unwrap(), expected);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), draw).await.expect("it draws while the pool is exhausted");
    tx.rollback().await.unwrap();
    db.close_by_ref().await.unwrap();
    assert!(orders.next().await.unwrap() > 4_999);
    sequences.close().await;
}
