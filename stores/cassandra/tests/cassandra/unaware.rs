//! Nodes that have not yet received a keyspace or table that another node created.
//!
//! This state is too short-lived to be tested directly. So the proxy misspells requests, and the node
//! replies that the keyspace or table does not exist.

use std::time::Duration;

use idmill::store::Store;
use idmill::{ErrorKind, Status};
use idmill_cassandra::{CassandraOptions, CassandraStore};

use crate::cluster::Cluster;
use crate::ledger::Ledger;
use crate::statements::Between;
use crate::{insist, query, request};

const KEYSPACES: &str = "FROM system_schema.keyspaces";
const TABLES: &str = "FROM system_schema.tables";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_waits_for_new_keyspaces_and_tables() {
    let Some(cluster) = Cluster::start("ids").await else { return };
    tokio::join!(
        a_keyspace_and_a_table_that_are_heard_of_later(&cluster),
        a_keyspace_that_is_never_heard_of(&cluster)
    );
    a_table_that_is_not_there_for_a_moment(&cluster).await;
}

/// Simulates a node that was down when the table was created, and receives a statement before it has the
/// table.
async fn a_table_that_is_not_there_for_a_moment(cluster: &Cluster) {
    let options = CassandraOptions::new([cluster.host(0)], "momentary")
        .datacenter("dc1")
        .create_keyspace([("dc1", 1)])
        .timeout(Duration::from_secs(60));
    let session = cluster.session().await;
    for round in 1..=5 {
        let store = Cluster::open(&options).await;
        query(&session, "DROP TABLE IF EXISTS momentary.idmill_sequences").await;
        let text = format!("s{round}");
        let reserving = tokio::spawn(async move { store.reserve(&request(&text, 5)).await });
        // The test also passes if this pause is too short: the reserve then finds the new table immediately.
        tokio::time::sleep(Duration::from_millis(500)).await;
        Cluster::open(&options).await;
        match reserving.await.unwrap() {
            Ok(_) => return,
            // A reserve retries for only a few seconds, and a busy node may need longer to create the
            // table.
            Err(error) => {
                assert!(
                    error.kind() == ErrorKind::NotFound || error.status() != Status::Permanent,
                    "{error}"
                );
                println!("round {round}: {error}");
            }
        }
    }
    panic!("no reserve is granted after the table is restored");
}

async fn a_keyspace_and_a_table_that_are_heard_of_later(cluster: &Cluster) {
    let proxy = Between::to(cluster.address(0)).await;
    // The store checks twice before the keyspace is created, and twice after.
    proxy.misspell(KEYSPACES, "heard_of", "unheard_", 4);
    proxy.misspell("CREATE TABLE", "heard_of", "unheard_", 2);
    // The store checks five times: twice before the table is created, once after each of two failed attempts,
    // and once after the successful attempt.
    proxy.misspell(TABLES, "idmill_sequences", "idmill_sequencez", 5);
    let store =
        CassandraStore::open(cluster.behind(&proxy, "heard_of").create_keyspace([("dc1", 1)])).await.unwrap();
    assert_eq!(proxy.outstanding(), 0, "the store did not repeat its check: nothing was tested");
    let mut ledger = Ledger::default();
    insist(&store, &request("s", 5), &mut ledger).await;
    // Another process, which may not create tables, opens the store a moment later.
    proxy.misspell(KEYSPACES, "heard_of", "unheard_", 1);
    proxy.misspell(TABLES, "idmill_sequences", "idmill_sequencez", 1);
    let store = CassandraStore::open(cluster.behind(&proxy, "heard_of").create_tables(false)).await.unwrap();
    assert_eq!(proxy.outstanding(), 0, "the store did not repeat its check: nothing was tested");
    insist(&store, &request("s", 5), &mut ledger).await;
    assert_eq!(ledger.disjoint(), 10);
}

async fn a_keyspace_that_is_never_heard_of(cluster: &Cluster) {
    let proxy = Between::to(cluster.address(0)).await;
    proxy.misspell(KEYSPACES, "never_heard_of", "never_heard_uf", 1_000_000);
    let error = CassandraStore::open(cluster.behind(&proxy, "never_heard_of").create_keyspace([("dc1", 1)]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("was created, but the node does not list it yet"), "{error}");
}
