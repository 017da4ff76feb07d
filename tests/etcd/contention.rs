//! Many at one key.

use idmill::store::Grant;
use tokio::task::JoinSet;

use super::{disjoint, inspect, open, request, shared};
use idmill::store::Store;

/// Those of one process share a store, those of different ones do not: both meet here.
async fn race(stores: usize, tasks: usize, times: usize, place: &str) {
    let Some(engine) = shared().await else { return };
    let mut running = JoinSet::new();
    for _ in 0..stores {
        let store = open(&engine, place).await;
        for _ in 0..tasks {
            let store = store.clone();
            running.spawn(async move {
                let mut grants = Vec::new();
                for _ in 0..times {
                    grants.push(store.reserve(&request("s", 10)).await.unwrap());
                }
                grants
            });
        }
    }
    let done = running.join_all().await;
    let grants: Vec<Grant> = done.into_iter().flatten().collect();
    assert_eq!(disjoint(&grants), 10 * (stores * tasks * times) as u64);
    // And there are no gaps: what was refused was not applied.
    let info = inspect(&open(&engine, place).await, "s").await;
    assert_eq!(info.next, Some(10 * (stores * tasks * times) as u64 + 1));
    assert!(grants.iter().all(|grant| grant.identity == info.identity));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_gets_on_among_stores() {
    race(8, 1, 200, "among_stores").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_gets_on_among_tasks() {
    race(2, 8, 50, "among_tasks").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_gets_on_among_very_many() {
    race(40, 1, 20, "among_many").await;
}
