//! The stored keys, and how they are found.

use std::collections::BTreeSet;

use idmill::ErrorKind;
use idmill::store::{Bounds, Page, Store};
use idmill_etcd::{EtcdOptions, EtcdStore};

use super::{get, name, open, post, reserve, shared};
use idmill_testing::engines::Engine;
use idmill_testing::engines::certificate::certify;

/// More keys than one answer contains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_is_complete() {
    let Some(engine) = shared().await else { return };
    let store = open(&engine, "long").await;
    let names: BTreeSet<String> = (0..2100).map(|number| format!("{number:04}/%")).collect();
    let mut creating = tokio::task::JoinSet::new();
    // Create the sequences in groups, because etcd aborts requests that wait for several seconds.
    for some in names.iter().cloned().collect::<Vec<_>>().chunks(42) {
        let (store, some) = (store.clone(), some.to_vec());
        creating.spawn(async move {
            for text in some {
                store.create(&name(&text), Bounds::of::<u32>()).await.unwrap();
            }
        });
    }
    creating.join_all().await;
    let list = store.list_all().await.unwrap();
    assert_eq!(list.len(), names.len());
    assert!(list.iter().zip(&names).all(|(info, name)| info.name.as_str() == name));
}

#[tokio::test]
async fn a_prefix_within_another_is_a_world_of_its_own() {
    let Some(engine) = shared().await else { return };
    let (outer, inner) = (open(&engine, "outer").await, open(&engine, "outer/inner").await);
    assert_eq!(reserve(&outer, "inner/s", 10).await.unwrap(), (1, 10));
    assert_eq!(reserve(&inner, "s", 10).await.unwrap(), (1, 10));
    for (store, expected) in [(&outer, "inner/s"), (&inner, "s")] {
        let names: Vec<_> =
            store.list_all().await.unwrap().into_iter().map(|info| info.name.to_string()).collect();
        assert_eq!(names, [expected]);
    }
}

/// etcd's own metrics count the requests.
#[tokio::test]
async fn uncontended_reserve_is_one_round_trip() {
    let Some(engine) = Engine::start("etcd").await else { return };
    let store = open(&engine, "ids").await;
    reserve(&store, "s", 10).await.unwrap();
    let asked = || async {
        let metrics = get(engine.address(), "/metrics").await;
        let count = |method: &str| {
            let of = format!("grpc_method=\"{method}\"");
            let started = metrics
                .lines()
                .filter(|line| line.starts_with("grpc_server_started_total") && line.contains(&of));
            started.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        (count("Range"), count("Txn"))
    };
    let before = asked().await;
    assert!(before.1 > 0, "the metrics have no transaction count: {before:?}");
    for _ in 0..10 {
        reserve(&store, "s", 10).await.unwrap();
    }
    assert_eq!(asked().await, (before.0, before.1 + 10));
}

#[tokio::test]
async fn foreign_value_is_rejected_by_name() {
    let Some(engine) = shared().await else { return };
    let store = open(&engine, "strange").await;
    // The key `/strange/s` with the value `15`.
    post(engine.address(), "/v3/kv/put", r#"{"key":"L3N0cmFuZ2Uvcw==","value":"MTU="}"#, None).await;
    for error in [reserve(&store, "s", 1).await.unwrap_err(), store.list_all().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
        assert!(error.to_string().contains("/strange/s"), "{error}");
    }
    reserve(&store, "t", 10).await.unwrap();
    let listing = store.list(&Page::default()).await.unwrap();
    let good: Vec<_> = listing.sequences.iter().map(|info| &*info.name).collect();
    let bad: Vec<_> = listing.unreadable.iter().map(|row| (&*row.name, row.error.kind())).collect();
    assert_eq!((good, bad), (vec!["t"], vec![("s", ErrorKind::StoreViolation)]));
    // After a manual removal, the sequence is created from its start.
    post(engine.address(), "/v3/kv/deleterange", r#"{"key":"L3N0cmFuZ2Uvcw=="}"#, None).await;
    assert_eq!(reserve(&store, "s", 1).await.unwrap(), (1, 1));
}

#[tokio::test]
async fn connections_can_be_encrypted() {
    let Some(engine) = Engine::down("etcd") else { return };
    let (certificate, _) = certify(engine.dir());
    engine.restart().await;
    let address = engine.address().to_string();
    let options = EtcdOptions::new([address.clone()]).ca(&certificate);
    let store = EtcdStore::open_with(options).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    // The cases: an unknown authority, a certificate for another host, and no encryption.
    let other = address.replace("127.0.0.1", "localhost");
    for (options, kind) in [
        (EtcdOptions::new([address.clone()]).tls(true), ErrorKind::Denied),
        (EtcdOptions::new([other]).ca(&certificate), ErrorKind::Denied),
        (EtcdOptions::new([address]), ErrorKind::Unavailable),
    ] {
        let error = EtcdStore::open_with(options).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(error.to_string().contains("ca=FILE"), kind == ErrorKind::Denied, "{error}");
    }
    let missing = EtcdOptions::new(["localhost"]).ca(engine.dir().join("none.pem"));
    let error = EtcdStore::open_with(missing).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("none.pem"), "{error}");
}
