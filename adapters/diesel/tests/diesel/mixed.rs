//! Processes with other adapters draw from the same sequences.

use std::collections::BTreeSet;

use idmill_diesel::diesel_async::AsyncConnection;
use idmill_diesel::postgres::{next_in, reserve_in};
use idmill_postgres::PostgresOptions;

use crate::{AnyError, open, pool, reserve, server, url};

const ROUNDS: u64 = 50;

/// A store and the transactions of two drivers draw from one sequence concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn diesel_and_tokio_postgres_share_without_duplicates() {
    let Some(engine) = server().await else { return };
    let (store, pool) = (open(&engine).await, pool(&engine, 4));
    let mut running = vec![tokio::spawn(async move {
        let mut drawn = Vec::new();
        for round in 0..ROUNDS {
            drawn.extend(reserve(&store, "shared", 1 + round % 3).await.unwrap().range.iter());
        }
        drawn
    })];
    for _ in 0..2 {
        let pool = pool.clone();
        running.push(tokio::spawn(async move {
            let mut drawn = Vec::new();
            for _ in 0..ROUNDS {
                let mut conn = pool.get().await.unwrap();
                let ids = conn.transaction(async |conn| {
                    let mut ids = vec![next_in::<u64>(conn, "shared").await?];
                    ids.extend(reserve_in::<u64>(conn, "shared", 2).await?.iter());
                    Ok::<_, AnyError>(ids)
                });
                drawn.extend(ids.await.unwrap());
            }
            drawn
        }));
    }
    let url = format!("{}?timeout=20s", url(&engine));
    running.push(tokio::spawn(async move {
        let options: PostgresOptions = url.parse().unwrap();
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
