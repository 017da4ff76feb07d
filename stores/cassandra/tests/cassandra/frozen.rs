//! One of three nodes in a datacenter accepts requests but never replies, while the other nodes work. Tests
//! flat mode with a keyspace in one datacenter, and geo mode with a global counter over two datacenters.

use std::time::{Duration, Instant};

use idmill_cassandra::CassandraOptions;
use tokio::time::timeout;

use crate::cluster::{Cluster, Wide};
use crate::ledger::Ledger;
use crate::{insist, request};

/// Limit for requests that involve a frozen node. The limit is below the driver's own limits, which add up to
/// more than a minute.
const LONG: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_node_does_not_stop_a_quorum() {
    let Some(cluster) = Wide::start().await else { return };
    let options =
        |keyspace| CassandraOptions::new((0..3).map(|node| cluster.host(node)), keyspace).datacenter("dc1");
    let flat = options("one").create_keyspace([("dc1", 3)]);
    let geo = options("both").create_keyspace([("dc1", 3), ("dc2", 3)]).geo("dc1", 100);
    let mut ledger = Ledger::default();
    let begun = Instant::now();
    let running = [Cluster::open(&flat).await, Cluster::open(&geo).await];
    let long = LONG + 10 * begun.elapsed();
    for store in &running {
        insist(store, &request("s", 5), &mut Ledger::default()).await;
    }
    // Freezes each node of the client's datacenter, then a node that only the global counter needs.
    for (frozen, node) in cluster.nodes.iter().enumerate().take(4) {
        node.pause();
        // A start must also succeed if the frozen node is asked first.
        for options in [&flat, &geo, &flat] {
            let begun = Instant::now();
            let starting = async {
                let store = Cluster::open(options).await;
                insist(&store, &request("t", 5), &mut Ledger::default()).await
            };
            let started = timeout(long, starting).await;
            println!("node {} frozen: a start took {:?}", frozen + 1, begun.elapsed());
            assert!(started.is_ok(), "a start hangs while node {} is frozen", frozen + 1);
        }
        let begun = Instant::now();
        for store in &running {
            for _ in 0..20 {
                let granted = timeout(long, insist(store, &request("s", 5), &mut Ledger::default())).await;
                assert!(granted.is_ok(), "nothing is granted while node {} is frozen", frozen + 1);
            }
        }
        println!("node {} frozen: 40 reserves took {:?}", frozen + 1, begun.elapsed());
        node.resume();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    for _ in 0..20 {
        insist(&running[0], &request("once", 5), &mut ledger).await;
    }
    assert_eq!(ledger.disjoint(), 100);
}
