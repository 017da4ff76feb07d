//! Random aborts, dropped callers, and an emulator that is paused or restarted.

use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::{Bounds, Store};
use idmill_spanner::{SpannerOptions, SpannerStore, gcloud_spanner};

use crate::setup::{Emulator, assert_tile, client, name, request};
use crate::transactions::number_invoices;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn randomly_aborted_commits_leave_no_gap_or_duplicate() {
    let Some(emulator) = Emulator::with(&["--enable_fault_injection"]).await else { return };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = emulator.store().await;
        tasks.spawn(async move {
            let mut ranges = Vec::new();
            for count in 1..=15 {
                ranges.push(store.reserve(&request("s", count)).await.unwrap().range);
            }
            ranges
        });
    }
    assert_tile(tasks.join_all().await.concat(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn randomly_aborted_transactions_leave_no_gap() {
    let Some(emulator) = Emulator::with(&["--enable_fault_injection"]).await else { return };
    let ddl = SpannerStore::ddl("idmill_sequences").unwrap();
    emulator.ddl(&["CREATE TABLE invoices (number INT64 NOT NULL) PRIMARY KEY (number)", &ddl]).await;
    let begun = number_invoices(&emulator).await;
    assert!(begun > 36, "none of {begun} transactions was aborted: nothing was tested");
}

/// With this flag the emulator never aborts an open transaction in favor of another, so a transaction that
/// is left behind would block all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_caller_leaves_no_lock() {
    let Some(emulator) = Emulator::with(&["--abort_current_transaction_probability=0"]).await else { return };
    let store = emulator.store().await;
    // `other` needs its own sessions: on a shared session, the driver would end a transaction by beginning
    // another.
    let other = emulator.store().await;
    store.create(&name("s"), Bounds::of::<u64>()).await.unwrap();
    let (mut lost, mut drawn) = (0, 0);
    for round in 0..60 {
        let request = request("s", 1);
        let impatient = tokio::time::timeout(Duration::from_micros(round * 100), store.reserve(&request));
        lost += u32::from(impatient.await.is_err());
        let next = other.reserve(&request).await.unwrap().range.start();
        assert!(next > drawn, "{next} after {drawn}");
        drawn = next;
    }
    assert!(lost > 5, "only {lost} of 60 callers timed out");
    assert!(drawn <= 120, "a caller takes one id at the most");
}

#[tokio::test]
async fn paused_and_restarted_emulators_are_reported() {
    let Some(emulator) = Emulator::start().await else { return };
    let ours = emulator.store().await;
    let own = client(&emulator.address(), |config: &mut gcloud_spanner::client::ClientConfig| {
        config.channel_config.timeout = Duration::from_secs(5);
    })
    .await;
    let store = SpannerStore::from_client(own, SpannerOptions::default()).await.unwrap();
    assert_eq!(store.reserve(&request("s", 5)).await.unwrap().range.start(), 1);
    emulator.daemon().pause();
    let error = store.reserve(&request("s", 5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "no transaction was begun: {error:?}");
    emulator.daemon().resume();
    assert_eq!(ours.reserve(&request("s", 5)).await.unwrap().range.start(), 6);
    emulator.daemon().kill();
    let error = store.reserve(&request("s", 5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    // The restarted emulator has lost the session, the database and the sequences.
    emulator.daemon().start().await.unwrap();
    let error = ours.reserve(&request("s", 5)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable), "{error:?}");
}
