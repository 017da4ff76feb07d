//! Tests that the store avoids the known errors of two published designs for MongoDB.

use std::sync::Arc;
use std::time::Duration;

use idmill::{Allocator, Error, ErrorKind, Sequences};
use idmill_mongodb::MongoStore;
use idmill_mongodb::driver::bson::doc;
use idmill_testing::eventually_within;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::commands::Between;
use crate::{documents, inspect, open, server, url};

/// Number of ids in a batch.
const STEP: u64 = 10;

/// Opens a sequence with batches of [`STEP`] ids. The next batch is reserved only when the current batch is
/// used up.
async fn batches(store: &MongoStore, start: u64) -> (Sequences, Allocator<u64>) {
    let ids = Sequences::new(store.clone()).unwrap();
    let sequence = ids.sequence::<u64>("orders").start(start).step(STEP).watermark(0).await.unwrap();
    (ids, sequence)
}

/// Calls `next` concurrently, `count` times.
async fn callers(sequence: &Allocator<u64>, count: usize) -> Vec<Result<u64, Error>> {
    let barrier = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (sequence, barrier) = (sequence.clone(), barrier.clone());
        tasks.spawn(async move {
            barrier.wait().await;
            sequence.next().await
        });
    }
    tasks.join_all().await
}

/// The first published version reserved a batch for each waiting caller, so 100 callers moved the counter
/// to 991.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_callers_advance_the_counter_by_about_100() {
    let Some(server) = server().await else { return };
    let proxy = Between::to(server.address()).await;
    let store = open(proxy.address()).await;
    let (ids, orders) = batches(&store, 1).await;
    for round in 1..=5 {
        proxy.counts(["findAndModify"]);
        let mut drawn: Vec<u64> = callers(&orders, 100).await.into_iter().map(Result::unwrap).collect();
        drawn.sort_unstable();
        assert_eq!(drawn, (100 * round - 99..=100 * round).collect::<Vec<_>>());
        // The rest of the last batch is drawn in the next round. So the counter is ahead of the drawn ids
        // by less than a batch, for any number of callers.
        let next = inspect(&store, "orders").await.next.unwrap();
        assert!((100 * round + 1..100 * round + 1 + STEP).contains(&next), "{next} after {round} rounds");
        let [reserves] = proxy.counts(["findAndModify"]);
        assert!((1..=10).contains(&reserves), "{reserves} reserves");
    }
    ids.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_instances_share_the_document() {
    let Some(server) = server().await else { return };
    let mut instances = Vec::new();
    for _ in 0..4 {
        instances.push(batches(&open(server.address()).await, 1_000).await);
    }
    let mut tasks = JoinSet::new();
    for (_, orders) in &instances {
        let orders = orders.clone();
        tasks.spawn(async move { callers(&orders, 50).await });
    }
    let mut drawn: Vec<u64> = tasks.join_all().await.into_iter().flatten().map(Result::unwrap).collect();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 200, "an id was handed out twice");
    let next = inspect(&open(server.address()).await, "orders").await.next.unwrap();
    assert!(drawn.first() == Some(&1_000) && drawn.last() < Some(&next), "{drawn:?}, and the next is {next}");
    // Each instance has less than a batch left.
    assert!(next < 1_200 + 4 * STEP, "{next}");
    for (ids, _) in instances {
        ids.close().await;
    }
}

/// A permanent error is returned to all callers that wait for the same reserve.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn permanent_error_reaches_all_waiters() {
    let Some(server) = server().await else { return };
    let (ids, orders) = batches(&open(server.address()).await, 1_000).await;
    assert_eq!(orders.take(10).await.unwrap().iter().next(), Some(1_000));
    let spoiled = doc! { "$set": { "last": "not a number" } };
    documents(server.address()).await.update_one(doc! { "_id": "orders" }, spoiled).await.unwrap();
    for outcome in callers(&orders, 50).await {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
        assert!(error.to_string().contains("no integer for `last`"), "{error}");
    }
    ids.close().await;
}

/// A transient error is retried until each caller's deadline. The caller's error then contains the last
/// error of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_time_out_in_an_outage_and_draws_resume_after() {
    let Some(server) = server().await else { return };
    let store = MongoStore::open(&url(server.address(), "&timeout=10s")).await.unwrap();
    let ids = Sequences::new(store).unwrap();
    let orders = ids.sequence::<u64>("orders").start(1_000).step(10).watermark(0);
    let orders = orders.timeout(Duration::from_secs(12)).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1_000);
    server.kill();
    assert_eq!(orders.take(9).await.unwrap().len(), 9, "ids in memory are served during the outage");
    for outcome in callers(&orders, 50).await {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        let cause = std::error::Error::source(&error).expect("the error of the store").to_string();
        assert!(cause.contains("orders"), "{cause}");
    }
    server.restart().await;
    // The driver must first detect that the server is back, which may take longer than one caller's
    // deadline.
    let id = eventually_within(Duration::from_secs(120), "draws resume after the outage", async || {
        let drawn = orders.next().await;
        if let Err(error) = &drawn {
            assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        }
        drawn
    })
    .await;
    assert!(id >= 1_010, "{id}");
    ids.close().await;
}
