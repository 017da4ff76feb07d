//! Broken connections and missing replies: compares the reported outcome with the real outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::Store;
use idmill_conformance::Proxy;
use idmill_conformance::proxy::{Fault, Gate};
use idmill_spanner::gcloud_spanner::client::ClientConfig;
use idmill_spanner::{InTransaction, SequenceTransaction, SpannerOptions, SpannerStore};
use idmill_testing::{eventually, holds};

use crate::setup::{Emulator, client, request};

/// The number of the COMMIT among the three requests of a reserve.
const COMMIT: usize = 3;
const NEXT: &str = "SELECT next_value FROM idmill_sequences WHERE name = 's'";

/// Returns the length of an HTTP/2 frame (RFC 9113, sections 3.4 and 4.1).
fn frame(bytes: &[u8]) -> Option<usize> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let [a, b, c, _, ..] = *bytes else { return None };
    if bytes.starts_with(&PREFACE[..4]) {
        return Some(PREFACE.len());
    }
    Some(9 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)))
}

fn begins_request(frame: &[u8]) -> bool {
    const HEADERS: u8 = 1;
    frame.get(3) == Some(&HEADERS)
}

/// Applies the fault to request `number`, counted from 1 after this call. Returns the counter of requests.
fn arm(proxy: &Proxy, fault: Fault, number: usize) -> Arc<AtomicUsize> {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    proxy.arm(fault, move |frame| {
        begins_request(frame) && count.fetch_add(1, Ordering::Relaxed) + 1 == number
    });
    seen
}

/// Returns a fault that withholds replies until the proxy cuts the connection.
fn withhold() -> Fault {
    Fault::Withhold(Gate::new())
}

async fn behind_a_proxy() -> Option<(Emulator, Proxy, SpannerStore)> {
    let emulator = Emulator::start().await?;
    // Reserves ids 1 to 10 and creates the table.
    emulator.store().await.reserve(&request("s", 10)).await.unwrap();
    let proxy = Proxy::builder(emulator.daemon().address()).frames(frame).start().await.unwrap();
    let options = emulator.options().emulator(proxy.address().to_string());
    let store = SpannerStore::open_with(options).await.unwrap();
    Some((emulator, proxy, store))
}

/// Waits until the emulator has applied a commit whose reply was lost.
async fn applied(emulator: &Emulator, next: i64) {
    eventually("the commit is applied", async || {
        let numbers = emulator.numbers(NEXT).await;
        holds(numbers == [next], numbers)
    })
    .await;
}

/// Reserves five ids, and retries after errors that report that no ids were reserved.
async fn reserve_five(store: &SpannerStore) -> u64 {
    eventually("the store connects again", async || {
        let granted = store.reserve(&request("s", 5)).await;
        if let Err(error) = &granted {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        }
        granted.map(|grant| grant.range.start())
    })
    .await
}

#[tokio::test]
async fn connection_cut_before_commit_reserves_nothing() {
    let Some((emulator, proxy, store)) = behind_a_proxy().await else { return };
    for number in 1..COMMIT {
        arm(&proxy, Fault::CutBefore, number);
        let error = store.reserve(&request("s", 5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{number}: {error:?}");
        assert_eq!(emulator.numbers(NEXT).await, [11], "{number}");
    }
    assert_eq!(reserve_five(&store).await, 11);
}

#[tokio::test]
async fn connection_cut_at_commit_is_unknown_outcome() {
    let Some((emulator, proxy, store)) = behind_a_proxy().await else { return };
    arm(&proxy, Fault::CutBefore, COMMIT);
    let error = store.reserve(&request("s", 5)).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::UnknownOutcome, Some("s")), "{error:?}");
    assert_eq!(
        emulator.numbers(NEXT).await,
        [11],
        "the commit was not applied, although the outcome is unknown"
    );
    // `reserve_five` also waits until the emulator has dropped the open transaction, which would abort other
    // transactions.
    assert_eq!(reserve_five(&store).await, 11);
    let seen = arm(&proxy, withhold(), COMMIT);
    let (outcome, ()) = tokio::join!(async { store.reserve(&request("s", 5)).await }, async {
        applied(&emulator, 21).await;
        proxy.cut();
    });
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    assert_eq!(seen.load(Ordering::Relaxed), COMMIT, "the commit is not sent again");
    assert_eq!(reserve_five(&store).await, 21, "16 to 20 are a gap");
}

/// Sets a short timeout for every request. The timeout must still suffice for successful requests on a busy
/// machine.
fn impatient(config: &mut ClientConfig) {
    config.channel_config.timeout = Duration::from_secs(5);
}

#[tokio::test]
async fn commit_that_times_out_is_unknown_outcome() {
    let Some((emulator, proxy, _)) = behind_a_proxy().await else { return };
    let own = client(&proxy.address().to_string(), impatient).await;
    let store = SpannerStore::from_client(own.clone(), SpannerOptions::default()).await.unwrap();
    arm(&proxy, withhold(), COMMIT);
    let error = store.reserve(&request("s", 5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    assert!(error.to_string().contains("Timeout expired"), "{error}");
    applied(&emulator, 16).await;
    proxy.cut();
    // Repeat the same inside the caller's transaction: begin, read, commit.
    let sequence = InTransaction::<i64>::new("s").unwrap();
    let mut tx = SequenceTransaction::begun(own.begin_read_write_transaction().await).unwrap();
    assert_eq!(tx.next(&sequence).await.unwrap(), 16);
    arm(&proxy, withhold(), 1);
    assert_eq!(tx.commit().await.err().unwrap().kind(), ErrorKind::UnknownOutcome);
    applied(&emulator, 17).await;
}

#[tokio::test]
async fn timed_out_read_reserves_nothing() {
    let Some((emulator, proxy, _)) = behind_a_proxy().await else { return };
    let own = client(&proxy.address().to_string(), impatient).await;
    let store = SpannerStore::from_client(own, SpannerOptions::default()).await.unwrap();
    arm(&proxy, withhold(), COMMIT - 1);
    let error = store.reserve(&request("s", 5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(emulator.numbers(NEXT).await, [11]);
    proxy.cut();
    assert_eq!(reserve_five(&store).await, 11);
}
