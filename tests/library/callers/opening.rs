//! Opening sequences, and starting on runtimes: success and failure.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill::{ErrorKind, Sequences};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use tokio::runtime::Builder;

use super::{LONG, builder, invalid, returns};

#[tokio::test(start_paused = true)]
async fn opening_times_out_if_the_store_is_silent() {
    let store = FaultyStore::with_faults(Faults::none().always(Fault::HangBefore));
    let ids = builder(store).store_timeout(Duration::from_secs(5)).start().unwrap();
    let orders = ids.sequence::<u64>("orders").timeout(Duration::from_secs(20));
    let begun = tokio::time::Instant::now();
    let error = tokio::time::timeout(LONG, orders.into_future()).await.expect("it ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    assert_eq!(begun.elapsed().as_secs(), 20);
    assert_eq!((error.sequence(), ids.len()), (Some("orders"), 0));
}

#[test]
fn opening_ends_without_a_runtime_too() {
    let store = FaultyStore::with_faults(Faults::none().always(Fault::HangBefore));
    let short = Duration::from_millis(20);
    let ids = builder(store).store_timeout(short).start().unwrap();
    let error = returns(move || ids.sequence::<u64>("orders").timeout(short).open_blocking()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_is_cancelled_leaves_nothing() {
    let store = FaultyStore::with_faults(Faults::none().always(Fault::HangBefore));
    let held = Arc::new(store) as Arc<dyn Store>;
    let ids = Sequences::builder(held.clone()).start().unwrap();
    tokio::task::yield_now().await;
    let before = Arc::strong_count(&held);
    for n in 0..1000 {
        let opening = ids.sequence::<u64>(format!("tenant-{n}")).into_future();
        assert!(tokio::time::timeout(Duration::from_millis(1), opening).await.is_err());
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(Arc::strong_count(&held) - before, 0, "references to the store");
}

#[tokio::test(start_paused = true)]
async fn unheld_sequences_are_evicted() {
    let ids = builder(FaultyStore::new()).idle_eviction(Duration::from_secs(60)).start().unwrap();
    let kept = ids.sequence::<u64>("kept").lazy().unwrap();
    for n in 0..10_000 {
        drop(ids.sequence::<u64>(format!("lazy-{n}")).lazy().unwrap());
    }
    drop(ids.sequence::<u64>("opened").await.unwrap());
    assert_eq!(ids.len(), 10_002);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(ids.len(), 1, "only the sequence in use remains");
    assert_eq!(kept.next().await.unwrap(), 1);
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        invalid(builder(FaultyStore::new()).start().map(drop), "enable_time");
        // The workaround that the error names.
        let ids = builder(FaultyStore::new()).own_thread().start().unwrap();
        let orders = ids.sequence::<u64>("o").max_buffered(10).await.unwrap();
        for expected in 1..=100 {
            assert_eq!(orders.next().await.unwrap(), expected);
        }
        ids.close().await;
    });
}

/// Runs in a separate process, whose threads need a larger stack than the address space.
#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_is_not_to_be_had_is_an_error() {
    const CHILD: &str = "IDMILL_TEST_NO_THREADS";
    if std::env::var_os(CHILD).is_some() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let error = builder(FaultyStore::new()).own_thread().start().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let error = Sequences::connect_blocking(async { Ok(FaultyStore::new()) }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        });
        return;
    }
    let name = "callers::opening::a_thread_that_is_not_to_be_had_is_an_error";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(CHILD, "1")
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it ran");
}
