//! Processes with other adapters draw from the same sequences.

use std::collections::BTreeSet;
use std::sync::Arc;

use idmill_postgres::PostgresStore as Other;
use idmill_sea_orm::idmill::store::Store;
use idmill_sea_orm::postgres::{next_in, reserve_in};
use sea_orm::TransactionTrait;

use crate::{open, reserve, server, service};

const ROUNDS: u64 = 50;

/// Two stores and the transactions of two drivers draw from one sequence concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sea_orm_and_tokio_postgres_share_without_duplicates() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 4).await;
    let url = format!("postgres://postgres@{}/postgres?timeout=20s", engine.address());
    let stores: [Arc<dyn Store>; 2] = [Arc::new(open(&db).await), Arc::new(Other::open(&url).await.unwrap())];
    let mut running = Vec::new();
    for store in stores {
        running.push(tokio::spawn(async move {
            let mut drawn = Vec::new();
            for round in 0..ROUNDS {
                drawn.extend(reserve(&*store, "shared", 1 + round % 3).await.unwrap().range.iter());
            }
            drawn
        }));
    }
    running.push(tokio::spawn(async move {
        let mut drawn = Vec::new();
        for _ in 0..ROUNDS {
            let tx = db.begin().await.unwrap();
            drawn.push(next_in::<u64>(&tx, "shared").await.unwrap());
            drawn.extend(reserve_in::<u64>(&tx, "shared", 2).await.unwrap().iter());
            tx.commit().await.unwrap();
        }
        drawn
    }));
    running.push(tokio::spawn(async move {
        let options: idmill_postgres::PostgresOptions = url.parse().unwrap();
        let mut client = options.client().await.unwrap();
        let mut drawn = Vec::new();
        for _ in 0..ROUNDS {
            let tx = client.transaction().await.unwrap();
            drawn.push(idmill_postgres::next_in::<u64>(&tx, "shared").await.unwrap());
            tx.commit().await.unwrap();
        }
        drawn
    }));
    let (mut all, mut count) = (BTreeSet::new(), 0);
    for one in running {
        let drawn = one.await.unwrap();
        count += drawn.len();
        all.extend(drawn);
    }
    assert_eq!(all.len(), count, "an id was drawn twice");
    assert_eq!(all, (1..=u64::try_from(count).unwrap()).collect(), "nothing failed, so nothing is missing");
}
