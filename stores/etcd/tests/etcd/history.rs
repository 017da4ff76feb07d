//! An etcd that was restored from a backup or replaced.

use std::fs;
use std::path::Path;

use idmill::store::{Bounds, Change, Store};
use idmill::{ErrorKind, Sequences};
use idmill_conformance::Proxy;
use idmill_etcd::{EtcdOptions, EtcdStore};

use super::{TIMEOUT, inspect, name, open, reserve, shared};
use idmill_testing::engines::Engine;
use idmill_testing::eventually;

/// A separate etcd, and a backup of it after one reserve of ten ids.
async fn backed_up() -> Option<(Engine, EtcdStore)> {
    let engine = Engine::start("etcd").await?;
    let store = open(&engine, "ids").await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    engine.kill();
    copy(&engine.dir().join("data"), &engine.dir().join("backup"));
    engine.restart().await;
    Some((engine, store))
}

async fn restore(engine: &Engine) {
    engine.kill();
    fs::remove_dir_all(engine.dir().join("data")).unwrap();
    copy(&engine.dir().join("backup"), &engine.dir().join("data"));
    engine.restart().await;
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

#[tokio::test]
async fn restored_etcd_is_rejected_by_running_processes() {
    let Some((engine, store)) = backed_up().await else { return };
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
    restore(&engine).await;
    for _ in 0..2 {
        let error = reserve(&store, "s", 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
        assert!(
            error.to_string().contains("restored") && error.to_string().contains("idmill set"),
            "{error}"
        );
        assert_eq!(store.inspect(&name("s")).await.unwrap_err().kind(), ErrorKind::StoreViolation);
        assert_eq!(store.list_all().await.unwrap_err().kind(), ErrorKind::StoreViolation);
    }
    // Apply the remedy from the error.
    let anew = open(&engine, "ids").await;
    assert_eq!(inspect(&anew, "s").await.next, Some(11), "the backup was restored");
    anew.set(&name("s"), Change::new().next(100)).await.unwrap();
    assert_eq!(
        reserve(&store, "s", 10).await.unwrap_err().kind(),
        ErrorKind::StoreViolation,
        "the error is permanent"
    );
    assert_eq!(reserve(&anew, "s", 10).await.unwrap(), (100, 10));
}

/// A process whose last answer is older than the backup would not detect the restore, and would continue from
/// the restored state.
#[tokio::test]
async fn detected_restore_raises_the_key_for_other_processes() {
    let Some((engine, store)) = backed_up().await else { return };
    let unaware = open(&engine, "ids").await;
    let ids = Sequences::new(store).unwrap();
    let s = ids.sequence::<u64>("s").step(10).watermark(0).await.unwrap();
    assert_eq!(s.take(30).await.unwrap().iter().next_back(), Some(40));
    restore(&engine).await;
    let error = s.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
    assert_eq!(reserve(&unaware, "s", 10).await.unwrap(), (41, 10));
    assert_eq!(s.next().await.unwrap_err().kind(), ErrorKind::StoreViolation, "the error is permanent");
    assert_eq!(reserve(&unaware, "s", 10).await.unwrap(), (51, 10), "the key is raised once");
}

/// The sequence itself is unchanged, but other data of the cluster is lost.
#[tokio::test]
async fn restored_cluster_is_rejected_for_unchanged_keys_too() {
    let Some((engine, store)) = backed_up().await else { return };
    reserve(&store, "another", 10).await.unwrap();
    restore(&engine).await;
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
    assert!(error.to_string().contains("etcd was at revision"), "{error}");
}

#[tokio::test]
async fn restored_key_is_detected_after_revisions_catch_up() {
    let Some((engine, store)) = backed_up().await else { return };
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
    restore(&engine).await;
    let other = open(&engine, "others").await;
    for _ in 0..5 {
        reserve(&other, "more", 1).await.unwrap();
    }
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
    assert!(error.to_string().contains("/ids/s"), "{error}");
}

/// The cached revision exists again, with another value.
#[tokio::test]
async fn reused_revision_does_not_match_the_cached_value() {
    let Some((engine, store)) = backed_up().await else { return };
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
    restore(&engine).await;
    // Reserve far more ids with the same number of writes, so that the revision is the same.
    assert_eq!(reserve(&open(&engine, "ids").await, "s", 1000).await.unwrap(), (11, 1000));
    let (start, _) = reserve(&store, "s", 10).await.unwrap();
    assert_eq!(start, 1011, "the next id did not go back, and the ids of the other store are skipped");
}

#[tokio::test]
async fn an_etcd_that_was_merely_killed_is_the_same() {
    let Some((engine, store)) = backed_up().await else { return };
    for round in 1..4 {
        engine.kill();
        engine.restart().await;
        assert_eq!(reserve(&store, "s", 10).await.unwrap(), (10 * round + 1, 10));
    }
}

#[tokio::test]
async fn another_cluster_is_refused() {
    let Some(one) = Engine::start("etcd").await else { return };
    let Some(other) = Engine::start("etcd").await else { return };
    let proxy = Proxy::start(one.address()).await.unwrap();
    let options = EtcdOptions::new([proxy.address().to_string()]).timeout(TIMEOUT);
    let store = EtcdStore::open_with(options).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    proxy.redirect(other.address());
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
    assert!(error.to_string().contains("cluster"), "{error}");
    proxy.redirect(one.address());
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}

/// A process that has the sequence in memory gets an error: it would otherwise recreate the key, and return
/// the same ids again.
#[tokio::test]
async fn deleted_key_is_not_recreated_after_grants() {
    let Some(engine) = shared().await else { return };
    let store = open(&engine, "deleted").await;
    let ids = Sequences::new(store).unwrap();
    let s = ids.sequence::<u64>("s").step(10).watermark(0).await.unwrap();
    assert_eq!(s.take(20).await.unwrap().iter().next_back(), Some(20));
    let admin = open(&engine, "deleted").await;
    assert!(admin.remove(&name("s"), None).await.unwrap());
    for _ in 0..2 {
        let error = s.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
        assert!(error.to_string().contains("its ids up to 20"), "{error}");
    }
    assert_eq!(admin.inspect(&name("s")).await.unwrap(), None);
    admin.create(&name("s"), Bounds::new(21, 1_000).unwrap()).await.unwrap();
    // The error stands for a moment.
    assert_eq!(eventually("the sequence is granted from again", async || s.next().await).await, 21);
}
