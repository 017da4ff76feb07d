//! Restored data directories and snapshots of etcd, deleted keys, another cluster: without a guard a
//! process that starts afterwards repeats ids, and with one it does not.

use std::path::Path;
use std::process::Command;

use idmill::ErrorKind;
use idmill::store::Store;
use idmill_testing::engines::{self, Engine};
use idmill_testing::restores::{Backup, Drawn, ran};
use idmill_url::Schemes;

use super::{name, open};

fn url(engine: &Engine) -> String {
    format!("etcd://{}?prefix=/restored/&timeout=60s", engine.address())
}

/// Ids drawn from a separate etcd with one member.
async fn drawn() -> Option<(Engine, Drawn)> {
    let schemes = Schemes::default().with(idmill_etcd::SCHEMES).unwrap();
    let engine = Engine::start("etcd").await?;
    let ids = Drawn::from(schemes, url(&engine));
    Some((engine, ids))
}

#[tokio::test]
async fn a_data_directory_that_is_put_back() {
    let Some((engine, mut ids)) = drawn().await else { return };
    ids.draw(30).await;
    let backup = Backup::of_engine(&engine, &engine.dir().join("data")).await;
    let running = ids.process().await.unwrap();
    ids.draw_with(&running, 50).await.unwrap();
    backup.put_back_under(&engine).await;
    let error = ids.draw_with(&running, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
    assert!(
        error.to_string().contains("restored from a backup"),
        "a running process detects the restore: {error}"
    );
    backup.put_back_under(&engine).await;
    ids.went_back().await;
}

/// As etcd's documentation describes, the snapshot becomes a new cluster. `--bump-revision` raises its
/// revision above all earlier ones.
#[tokio::test]
async fn a_snapshot_that_is_restored() {
    for bumped in [&[][..], &["--bump-revision=1000000000", "--mark-compacted"]] {
        let Some((engine, mut ids)) = drawn().await else { return };
        let snapshot = engine.dir().join("snapshot.db");
        ids.draw(30).await;
        let endpoint = format!("--endpoints={}", engine.address());
        ran(tool("etcdctl").args([&endpoint, "snapshot", "save"]).arg(&snapshot));
        let running = ids.process().await.unwrap();
        ids.draw_with(&running, 50).await.unwrap();
        restored(&engine, &snapshot, bumped).await;
        let error = ids.draw_with(&running, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "a running process detects the restore: {error}");
        restored(&engine, &snapshot, bumped).await;
        ids.went_back().await;
    }
}

fn tool(name: &str) -> Command {
    engines::tool("etcd", name).expect("etcd's tools are installed")
}

/// Restores the snapshot into the only member, which keeps its addresses.
async fn restored(engine: &Engine, snapshot: &Path, bumped: &[&str]) {
    engine.kill();
    let (data, peer) = (engine.dir().join("data"), format!("http://{}", engine.address()));
    std::fs::remove_dir_all(&data).unwrap();
    let member = ["--name=m1", "--initial-cluster", &format!("m1={peer}")];
    let mut restore = tool("etcdutl");
    restore.args(["snapshot", "restore"]).arg(snapshot).arg("--data-dir").arg(&data);
    ran(restore.args(member).args(["--initial-advertise-peer-urls", &peer]).args(bumped));
    engine.restart().await;
}

#[tokio::test]
async fn a_key_that_is_deleted() {
    let Some((engine, mut ids)) = drawn().await else { return };
    ids.draw(50).await;
    let admin = open(&engine, "restored").await;
    assert!(admin.remove(&name("s"), None).await.unwrap());
    assert_eq!(ids.repeated(20).await, 20);
    assert!(admin.remove(&name("s"), None).await.unwrap());
    ids.another().await;
}

#[tokio::test]
async fn another_cluster_behind_a_guard() {
    let Some((engine, mut ids)) = drawn().await else { return };
    ids.draw(50).await;
    let Some(other) = Engine::start("etcd").await else { return };
    ids.moves_to(url(&other));
    assert_eq!(ids.repeated(20).await, 20);
    ids.refused().await;
    ids.moves_to(url(&engine));
    assert_eq!(ids.draw(50).await, 0);
}
