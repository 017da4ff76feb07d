//! The log of a store that fails for a while.

use std::time::Duration;

use idmill::store::{Change, Store};
use idmill::{ErrorKind, Sequences};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use idmill_testing::log::Log;
use serde_json::Value;
use tracing::Level;

#[tokio::test(start_paused = true)]
async fn store_recovery_is_logged_once() {
    let (log, _here) = Log::begin(Level::INFO);
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let orders = ids.sequence::<u64>("orders").step(1).watermark(0).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    assert_eq!(log.text(), "", "all is well");

    for _ in 0..2 {
        store.push_fault(Fault::LostRequest);
    }
    for id in 2..=4 {
        assert_eq!(orders.next().await.unwrap(), id);
    }
    let lines = log.lines();
    let [failed, back] = &lines[..] else { panic!("two failures of one kind, and one return: {lines:?}") };
    assert!(failed["level"] == "WARN" && failed["fields"]["message"] == "reserve failed", "{failed}");
    assert_eq!(failed["fields"]["sequence"], "orders");
    assert!(failed.to_string().contains("unavailable"), "{failed}");
    assert!(back["level"] == "INFO" && back["fields"]["message"] == "the store grants ids again", "{back}");
    assert!(back["fields"]["sequence"] == "orders" && back["fields"]["failures"] == 2, "{back}");
    assert!(back["fields"]["since_grant"].is_string(), "{back}");
}

#[tokio::test(start_paused = true)]
async fn reset_end_and_lost_writes_are_logged_once() {
    let (log, _here) = Log::begin(Level::INFO);
    let store = FaultyStore::new();
    let ids = Sequences::builder(store.clone()).max_age(Duration::from_secs(8)).start().unwrap();
    let orders = ids.sequence::<u64>("orders").max(30).step(10).watermark(0).await.unwrap();
    let draw = async |count: u64| {
        for _ in 0..count {
            orders.next().await.unwrap();
        }
    };
    let mut read = 0;
    let mut new_lines = || {
        let lines = log.lines().split_off(read);
        read += lines.len();
        lines
    };
    let is_line = |lines: &[Value], level: &str, words: &str| {
        let [line] = lines else { panic!("{words:?}: {lines:?}") };
        assert!(line["level"] == level && line["fields"]["sequence"] == "orders", "{line}");
        assert!(line["fields"].to_string().contains(words), "{line}");
    };
    draw(10).await;
    store.set(&"orders".parse().unwrap(), Change::new().next(1).backwards(true)).await.unwrap();
    draw(1).await;
    is_line(&new_lines(), "WARN", "the sequence was reset");

    store.set(&"orders".parse().unwrap(), Change::new().revoke(true)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    is_line(&new_lines(), "WARN", "ids in memory were dropped");

    draw(10).await;
    let _ = new_lines();
    let backup = store.snapshot();
    draw(10).await;
    for _ in 0..3 {
        assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    }
    is_line(&new_lines(), "WARN", "the sequence is exhausted");

    store.restore(&backup);
    orders.discard();
    assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::StoreViolation);
    let errors: Vec<_> = new_lines().into_iter().filter(|line| line["level"] == "ERROR").collect();
    is_line(&errors, "ERROR", "the store went back in time");
}

#[tokio::test(start_paused = true)]
async fn failures_have_a_line_when_their_kind_changes() {
    let (log, _here) = Log::begin(Level::INFO);
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let orders = ids.sequence::<u64>("orders").step(1).watermark(0).await.unwrap();
    for kind in [ErrorKind::Denied, ErrorKind::StoreViolation] {
        store.fail_sequence("orders", kind);
        // A permanent error stands for up to 10 s.
        tokio::time::sleep(Duration::from_secs(11)).await;
        for _ in 0..1000 {
            assert_eq!(orders.next().await.unwrap_err().kind(), kind);
        }
    }
    store.heal_sequence("orders");
    tokio::time::sleep(Duration::from_secs(11)).await;
    orders.next().await.unwrap();
    let levels: Vec<_> = log.lines().iter().map(|line| line["level"].clone()).collect();
    assert_eq!(levels, ["WARN", "WARN", "INFO"], "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn ids_not_returned_in_time_are_counted_in_the_log() {
    let (log, _here) = Log::begin(Level::INFO);
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    for name in ["orders", "users"] {
        let sequence = ids.sequence::<u64>(name).step(10).watermark(0).await.unwrap();
        assert_eq!(sequence.take(3).await.unwrap().len(), 3);
    }
    store.set_faults(Faults::none().always(Fault::HangBefore));
    ids.close().await;
    let lines = log.lines();
    let [late] = &lines[..] else { panic!("one warning: {lines:?}") };
    let text = late["fields"]["message"].as_str().unwrap();
    assert!(text.contains("did not take back") && text.contains("close_timeout"), "{late}");
    assert!(late["fields"]["sequences"] == 2 && late["fields"]["ids"] == 14, "{late}");
}
