//! Tests a datacenter that cannot reach the other datacenter.

use std::time::{Duration, Instant};

use idmill::store::{Bounds, Store};
use idmill::{Error, ErrorKind};
use idmill_cassandra::CassandraStore;
use idmill_cassandra::scylla;
use idmill_cassandra::scylla::frame::types::Consistency;
use idmill_cassandra::scylla::statement::unprepared::Statement;

use crate::cluster::Cluster;
use crate::ledger::Ledger;
use crate::{create, drain, insist, query, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_datacenter_drains_window_then_is_unavailable() {
    let Some(cluster) = Cluster::start("cut_off").await else { return };
    let max = 1_500;
    let [here, there] = cluster.both(60, 50).await;
    create(&here, "s", Bounds::new(1, max).unwrap()).await;
    let mut ledger = Ledger::default();
    for kill in [true, false] {
        let held = fill(&cluster, &here, &mut ledger).await;
        ledger.note(4, &there.reserve(&request("s", 4)).await);
        if kill {
            cluster.nodes[1].kill();
        } else {
            cluster.nodes[1].pause();
        }
        let doubtful = ledger.doubtful;
        let (granted, error) = use_up(&here, &mut ledger).await;
        let doubtful = ledger.doubtful - doubtful;
        assert!(
            granted + doubtful >= held,
            "{granted} ids granted while cut off, {doubtful} in doubt, {held} in the window: {error}"
        );
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        assert!(text.contains("could not be refilled from the global counter"), "{text}");
        if kill {
            cluster.nodes[1].start().await.unwrap();
        } else {
            cluster.nodes[1].resume();
        }
        for store in [&here, &there] {
            insist(store, &request("s", 4), &mut ledger).await;
        }
    }
    for store in [&here, &there] {
        ledger.add(drain(store, &request("s", 7)).await);
    }
    ledger.accounts_for(max);
}

/// Draws until the window has a preloaded range. Returns the number of ids in the window.
async fn fill(cluster: &Cluster, store: &CassandraStore, ledger: &mut Ledger) -> u64 {
    let session = cluster.session().await;
    let mut cql = Statement::new(format!(
        "SELECT next, until, preloaded_next, preloaded_until FROM {}.idmill_sequences_windows \
         WHERE name = 's' AND datacenter = 'dc1'",
        cluster.keyspace
    ));
    cql.set_consistency(Consistency::LocalSerial);
    let begun = Instant::now();
    loop {
        insist(store, &request("s", 4), ledger).await;
        let rows = query(&session, cql.clone()).await.into_rows_result().unwrap();
        let (next, until, from, to) =
            rows.first_row::<(Number, Number, Option<Number>, Option<Number>)>().unwrap();
        if let (Some(from), Some(to)) = (from, to) {
            return to_u64(&until) - to_u64(&next) + to_u64(&to) - to_u64(&from);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is ever preloaded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

type Number = scylla::value::CqlVarint;

fn to_u64(number: &Number) -> u64 {
    number.as_signed_bytes_be_slice().iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Reserves until the window is used up. Returns the number of granted ids, and the error. On a busy machine
/// a node may reply too late; such a reserve has an unknown outcome or can be retried.
async fn use_up(store: &CassandraStore, ledger: &mut Ledger) -> (u64, Error) {
    let (mut granted, begun) = (0, Instant::now());
    loop {
        let reply = store.reserve(&request("s", 4)).await;
        ledger.note(4, &reply);
        match reply {
            Ok(grant) => granted += grant.range.len(),
            Err(error) if error.to_string().contains("window of datacenter dc1 is used up") => {
                return (granted, error);
            }
            Err(error) => {
                assert!(error.status() != idmill::Status::Permanent, "{error}");
                println!("after {granted} ids: {error}");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{granted} ids, and no end");
    }
}
