//! Dead connections that report no error.

use std::sync::Arc;
use std::time::Duration;

use idmill_conformance::Proxy;
use idmill_postgres::PostgresStore;
use idmill_testing::engines::silence::silent_reply_is_an_unknown_outcome;
use idmill_testing::eventually;

use crate::{client, open, reserve, server, url};

#[tokio::test]
async fn silent_connections_cost_one_unknown_outcome_in_total() {
    let Some(engine) = server().await else { return };
    let proxy = Proxy::start(engine.address()).await.unwrap();
    let direct = engine.address().to_string();
    let url = url(&engine, "").replace(&direct, &proxy.address().to_string()).replace("20s", "10s");
    let store = PostgresStore::open(&url).await.unwrap();
    silent_reply_is_an_unknown_outcome(Arc::new(store), &proxy).await;
}

/// A firewall may drop an idle connection.
#[tokio::test]
async fn one_that_was_idle_for_a_minute_is_not_used_again() {
    let Some(engine) = server().await else { return };
    let (store, client) = (open(&engine).await, client(&engine).await);
    let sessions = async || {
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'idmill'";
        let rows = client.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>()
    };
    reserve(&store, "s", 1).await.unwrap();
    let before = sessions().await;
    reserve(&store, "s", 1).await.unwrap();
    assert_eq!((before.len(), sessions().await), (1, before.clone()), "the connection is reused");
    // No call is active, so advancing the clock by a minute causes no timeout.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    reserve(&store, "s", 1).await.unwrap();
    // The server detects the closed connection a moment later.
    let after = eventually("the old connection is closed", async || {
        let sessions = sessions().await;
        if sessions.len() == 1 { Ok(sessions) } else { Err(sessions) }
    })
    .await;
    assert_ne!(after, before);
}
