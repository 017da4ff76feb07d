//! A witness that is in the same place as the store is refused, even under another name.

use idmill_testing::engines::Engine;
use idmill_testing::fleet::Server;

use crate::ONE;
use crate::common::Place;

/// Tests pairs of URLs for the same server, with `{}` for its address and `{port}` for its port.
async fn refused(engine: &str, pairs: &[[&str; 2]], said: &str) {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start(engine).await else { return };
    let place = Place::new();
    let port = engine.address().port().to_string();
    let url = |url: &str| url.replace("{}", &engine.address().to_string()).replace("{port}", &port);
    for [store, witness] in pairs {
        let (store, witness) = (url(store), url(witness));
        // Draw from both URLs first, so that the store and the witness exist.
        for store in [&store, &witness] {
            let drawn = place.run(&["next", "orders", "--store", store]);
            assert_eq!(drawn.code, 0, "{store}: {drawn:?}");
        }
        for witness in [format!("{witness}&new=true"), witness.clone()] {
            let ran = place.run(&["next", "orders", "--store", &store, "--guard", &witness]);
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{store}, {witness}: {ran:?}");
            assert!(ran.err.contains(said), "{store}, {witness}: {}", ran.err);
        }
    }
}

/// The promotion of the server's standby rolls back the store and the witness, even if both are in different
/// databases.
#[tokio::test]
async fn witness_on_the_same_postgres_is_refused() {
    let store = "postgres://postgres@{}/postgres?timeout=30s";
    let pairs = [
        [store, "postgres://postgres@localhost:{port}/postgres?timeout=30s"],
        [store, "postgres://postgres@{}/template1?timeout=30s"],
        [
            "postgres://postgres@{}/postgres?timeout=30s&sequences=native",
            "postgres://postgres@{}/template1?timeout=30s",
        ],
    ];
    refused("postgres", &pairs, "on the store's server, PostgreSQL cluster").await;
}

#[tokio::test]
async fn witness_on_the_same_etcd_is_refused() {
    let pairs = [["etcd://{}?timeout=30s", "etcd://localhost:{port}?timeout=30s&prefix=/w/"]];
    refused("etcd", &pairs, "on the store's server, etcd cluster").await;
}

#[tokio::test]
async fn witness_on_the_same_redis_is_refused() {
    let pairs = [["redis://{}/0?timeout=30s", "redis://{}/1?timeout=30s"]];
    refused("redis", &pairs, "on the store's server, Redis server").await;
}

/// MariaDB has no identifier of the server, so the guard writes a probe to detect a shared database.
#[tokio::test]
async fn witness_in_the_same_mariadb_database_is_refused() {
    let pairs = [["mysql://root@{}/ids?timeout=30s", "mariadb://root@localhost:{port}/ids?timeout=30s"]];
    refused("mariadb", &pairs, "is the store itself").await;
}

/// An idmill server hides the address of its store, and the databases differ. The server's store is in the
/// same PostgreSQL cluster as the other store, in each direction and behind two servers.
#[tokio::test]
async fn witness_behind_a_server_on_the_same_postgres_is_refused() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("postgres").await else { return };
    let (place, other) = (Place::new(), Place::new());
    let [store, beside] = ["postgres", "template1"]
        .map(|database| format!("postgres://postgres@{}/{database}?timeout=30s", engine.address()));
    let [one, two] = [(&place, &store), (&other, &beside)]
        .map(|(place, store)| Server::start(&mut place.serve(&["--store", store])));
    let [one, two] = [one, two].map(|served| (format!("idmill://{}?timeout=30s", served.resp), served));
    for (store, witness) in [(&store, &two.0), (&one.0, &beside), (&one.0, &two.0), (&store, &one.0)] {
        for witness in [format!("{witness}&new=true"), witness.clone()] {
            let ran = place.run(&["next", "orders", "--store", store, "--guard", &witness]);
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{store}, {witness}: {ran:?}");
            let said = "on the store's server, PostgreSQL cluster";
            assert!(ran.err.contains(said), "{store}, {witness}: {}", ran.err);
        }
    }
}

/// Two servers guard each other.
#[tokio::test]
async fn witness_on_another_postgres_is_accepted() {
    let _one = ONE.lock().await;
    let (Some(one), Some(other)) = (Engine::start("postgres").await, Engine::start("postgres").await) else {
        return;
    };
    let place = Place::new();
    let [one, other] = [one.address(), other.address()]
        .map(|address| format!("postgres://postgres@{address}/postgres?timeout=30s"));
    for (store, witness) in [(&one, &other), (&other, &one), (&one, &other)] {
        let drawn = place.run(&["next", "orders", "--store", store, "--guard", witness]);
        assert_eq!(drawn.code, 0, "{drawn:?}");
    }
}
