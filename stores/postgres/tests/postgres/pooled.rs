//! Stores behind PgBouncer in transaction mode, where the next statement usually runs in another session.

use std::collections::BTreeSet;
use std::time::Duration;

use idmill::store::Store;
use idmill::{IdRange, Status};
use idmill_testing::engines::Engine;
use tokio::task::JoinSet;

use crate::{client, ids, reserve, schemes, server, url};

/// A server, and a pooler with two connections to it.
async fn pooled() -> Option<(Engine, Engine)> {
    let engine = server().await?;
    let port = engine.address().port().to_string();
    let pooler = Engine::set("pgbouncer", idmill_conformance::free_port(), &[&port])?;
    pooler.restart().await;
    Some((engine, pooler))
}

/// Eight stores that reserve concurrently; returns all granted ranges.
async fn crowd(pooler: &Engine, options: &str) -> Vec<IdRange> {
    let mut crowd = JoinSet::new();
    for _ in 0..8 {
        let url = url(pooler, options);
        crowd.spawn(async move {
            let store = schemes().open(&url).await.unwrap();
            let mut granted = Vec::new();
            for _ in 0..25 {
                granted.push(reserve(&*store, "s", 3).await.unwrap().range);
            }
            granted
        });
    }
    crowd.join_all().await.concat()
}

#[tokio::test]
async fn ids_are_unique_behind_a_pooler() {
    let Some((engine, pooler)) = pooled().await else { return };
    // With native sequences, the first value that a process draws grants only one id.
    for (options, least) in [("", 600), ("&sequences=native&increment=3", 600 - 8 * 2)] {
        let granted = crowd(&pooler, options).await;
        let ids: BTreeSet<u64> = granted.iter().flatten().collect();
        let count = granted.iter().map(IdRange::len).sum::<u64>();
        assert_eq!(u64::try_from(ids.len()).unwrap(), count, "{options}: an id was granted twice");
        assert!(count >= least && ids.first() == Some(&1), "{options}: {count} ids");
    }
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idmill'";
    let sessions: i64 = client(&engine).await.query_one(sql, &[]).await.unwrap().get(0);
    assert!((1..=2).contains(&sessions), "{sessions} sessions: there was no pooler in between");
}

/// Only one of the two sessions has the prepared statement. In the other session, `EXECUTE` fails without
/// effect, and the statement is sent unprepared.
#[tokio::test]
async fn statements_that_another_session_keeps_are_sent_whole() {
    let Some((engine, pooler)) = pooled().await else { return };
    let store = schemes().open(&url(&pooler, "")).await.unwrap();
    let mut next = 1;
    let mut granted = async |times| {
        for _ in 0..times {
            assert_eq!(ids(reserve(&*store, "s", 3).await.unwrap().range), (next, next + 2));
            next += 3;
        }
    };
    granted(4).await;
    let kept = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'idmill%'";
    // The pooler reuses the last session.
    let mut holder = client(&pooler).await;
    let held = holder.transaction().await.unwrap();
    let count = held.query_typed(kept, &[]).await.unwrap()[0].get::<_, i64>(0);
    assert_eq!(count, 1, "the reused session keeps the statement");
    granted(4).await;
    held.rollback().await.unwrap();
    granted(4).await;
    let beside = client(&engine).await;
    let all: i64 = beside.query_one("SELECT next::bigint FROM idmill_sequences", &[]).await.unwrap().get(0);
    assert_eq!(all, 37);
}

/// The pooler's error for a lost server is neither a grant nor a permanent refusal.
#[tokio::test]
async fn a_server_that_is_killed_behind_it_repeats_nothing() {
    let Some((engine, pooler)) = pooled().await else { return };
    let store = schemes().open(&url(&pooler, "")).await.unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let range = reserve(&*store, "s", 3).await.unwrap().range;
        assert!(range.start() > last);
        engine.kill();
        let error = reserve(&*store, "s", 3).await.unwrap_err();
        assert_ne!(error.status(), Status::Permanent, "{error}");
        engine.restart().await;
        last = again(&*store).await.start();
        assert!(last > range.start());
    }
}

/// Retries, since the pooler waits before it reconnects.
async fn again(store: &dyn Store) -> IdRange {
    for _ in 0..600 {
        match reserve(store, "s", 3).await {
            Ok(grant) => return grant.range,
            Err(error) => assert_ne!(error.status(), Status::Permanent, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no reserve is granted after the fault");
}
