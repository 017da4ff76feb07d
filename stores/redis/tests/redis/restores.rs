//! Restored Redis files, an emptied server, a promoted replica: without a guard ids are repeated, and with
//! one they are not.

use idmill::ErrorKind;
use idmill_kit::Target as _;
use idmill_redis::{Failover, RedisOptions};
use idmill_testing::engines::Engine;
use idmill_testing::restores::Drawn;
use idmill_testing::{eventually_blocking, holds};
use idmill_url::Schemes;

use crate::server::{ask, cut_off, info, pair, promote, start, until_rewritten};

/// The ids drawn from the server.
fn drawn(engine: &Engine, options: &str) -> Drawn {
    let schemes = Schemes::default().with(idmill_redis::SCHEMES).unwrap();
    Drawn::from(schemes, url(engine, options))
}

fn url(engine: &Engine, options: &str) -> String {
    format!("redis://{}?timeout=20s{options}", engine.address())
}

#[tokio::test]
async fn an_append_only_file_that_is_put_back() {
    let Some(engine) = start(&[]).await else { return };
    drawn(&engine, "").survives_a_restore(&engine, &engine.dir().join("appendonlydir")).await;
}

/// Loads the snapshot as Redis' documentation says: without the append-only file, which is turned on
/// afterwards.
#[tokio::test]
async fn a_snapshot_that_is_loaded() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    synced(&engine);
    let mut ids = drawn(&engine, "");
    ids.draw(30).await;
    assert_eq!(ask(&engine, &["SAVE"]), "+OK");
    ids.draw(50).await;
    engine.kill();
    engine.restart().await;
    synced(&engine);
    ids.went_back().await;
}

fn synced(engine: &Engine) {
    assert_eq!(ask(engine, &["CONFIG", "SET", "appendonly", "yes"]), "+OK");
    until_rewritten(engine);
}

#[tokio::test]
async fn a_server_that_is_emptied() {
    let Some(engine) = start(&[]).await else { return };
    let mut ids = drawn(&engine, "");
    let running = ids.process().await.unwrap();
    ids.draw_with(&running, 50).await.unwrap();
    assert_eq!(ask(&engine, &["FLUSHALL"]), "+OK");
    let error = ids.draw_with(&running, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "a running process detects the loss: {error}");
    assert_eq!(ids.repeated(20).await, 20, "a new process does not detect the loss");
    assert_eq!(ask(&engine, &["FLUSHALL"]), "+OK");
    ids.another().await;
}

#[tokio::test]
async fn another_database() {
    let Some(engine) = start(&[]).await else { return };
    let mut ids = drawn(&engine, "");
    ids.draw(50).await;
    ids.moves_to(url(&engine, "&prefix=another"));
    assert_eq!(ids.repeated(20).await, 20);
    ids.refused().await;
    ids.moves_to(url(&engine, ""));
    assert_eq!(ids.draw(50).await, 0);
}

/// A stopped master, and its replica, which was promoted without the last ids.
async fn promoted(options: &str) -> Option<(Engine, Engine, Drawn)> {
    let (master, replica) = pair().await?;
    let mut ids = drawn(&master, options);
    ids.draw(30).await;
    eventually_blocking("the replica has all", || {
        let (has, all) = (info(&replica, "slave_repl_offset"), info(&master, "master_repl_offset"));
        holds(has == all, (has, all))
    });
    cut_off(&replica);
    ids.draw(50).await;
    master.kill();
    promote(&replica);
    ids.moves_to(url(&replica, options));
    Some((master, replica, ids))
}

#[tokio::test]
async fn a_replica_that_is_promoted_without_the_last_writes() {
    let Some((_master, _replica, mut ids)) = promoted("&failover=allow").await else { return };
    ids.went_back().await;
}

/// The store refuses the replica, with or without a guard, until the next id is set.
#[tokio::test]
async fn a_promoted_replica_that_is_refused() {
    let Some((_master, replica, mut ids)) = promoted("&failover=refuse").await else { return };
    let process = ids.process().await.unwrap();
    let error = ids.draw_with(&process, 1).await.unwrap_err();
    assert_eq!((error.kind(), process.healed()), (ErrorKind::Conflict, 0), "{error}");
    let options: RedisOptions = url(&replica, "&failover=refuse").parse().unwrap();
    let refused = options.refused().await.unwrap();
    let [(_, error)] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(options.failover(Failover::Allow).refused().await.unwrap().is_empty());
    // The new next id has already been claimed: the guard raises the next id above all claimed ids.
    process.set_next(40).await.unwrap();
    assert_eq!(ids.draw(100).await, 1);
}
