//! Concurrent writers of one key.

use idmill::store::Grant;
use idmill::store::Store;
use idmill::{ErrorKind, Status};
use idmill_etcd::EtcdStore;
use tokio::task::JoinSet;

use super::{disjoint, inspect, open, request, shared};

/// Tasks of one process share a store, and each process has its own: the race combines both.
async fn race(stores: usize, tasks: usize, times: usize, place: &str) {
    let Some(engine) = shared().await else { return };
    let mut running = JoinSet::new();
    for _ in 0..stores {
        let store = open(&engine, place).await;
        for _ in 0..tasks {
            let store = store.clone();
            running.spawn(async move {
                let (mut grants, mut unknown) = (Vec::new(), 0);
                for _ in 0..times {
                    grants.push(insist(&store, &mut unknown).await);
                }
                (grants, unknown)
            });
        }
    }
    let done = running.join_all().await;
    let unknown: u64 = done.iter().map(|(_, unknown)| unknown).sum();
    let grants: Vec<Grant> = done.into_iter().flat_map(|(grants, _)| grants).collect();
    assert_eq!(disjoint(&grants), 10 * (stores * tasks * times) as u64);
    // Only unknown outcomes leave gaps: a refused write was not applied.
    let info = inspect(&open(&engine, place).await, "s").await;
    let next = 10 * (stores * tasks * times) as u64 + 1;
    assert!((next..=next + 10 * unknown).contains(&info.next.unwrap()), "{info:?}, {unknown} unknown");
    assert!(grants.iter().all(|grant| grant.identity == info.identity));
}

/// Retries, since on a busy machine a call may lose every race until its timeout, and etcd may abort a
/// request.
async fn insist(store: &EtcdStore, unknown: &mut u64) -> Grant {
    let mut last = None;
    for _ in 0..10 {
        match store.reserve(&request("s", 10)).await {
            Ok(grant) => return grant,
            Err(error) => {
                assert!(error.status() != Status::Permanent, "{error}");
                *unknown += u64::from(error.kind() == ErrorKind::UnknownOutcome);
                last = Some(error);
            }
        }
    }
    panic!("{}", last.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contending_stores_all_finish() {
    race(8, 1, 200, "among_stores").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contending_tasks_all_finish() {
    race(2, 8, 50, "among_tasks").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn very_many_contending_stores_all_finish() {
    race(40, 1, 20, "among_many").await;
}
