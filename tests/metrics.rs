//! What the `metrics` facade is told.

#![cfg(feature = "metrics")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of gauges that are whole and small

use std::collections::HashMap;
use std::time::{Duration, Instant};

use idmill::store::{Fault, Faults, MemoryStore};
use idmill::{Health, Sequences};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

#[test]
fn what_happened_is_recorded_under_the_sequences_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let store = MemoryStore::with_faults(Faults::default().script([Fault::LostReply]));
    let ids = Sequences::builder(store).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).open_blocking().unwrap();
    for _ in 0..12 {
        let _ = orders.next_blocking(Duration::from_secs(60)).unwrap();
    }
    ids.record_metrics();

    let seen = read(&snapshotter);
    assert_eq!(seen["idmill_draws_total"], 12);
    assert_eq!(seen["idmill_granted_total"], 20);
    assert_eq!(seen["idmill_reserves_total"], 3);
    assert_eq!(seen["idmill_reserve_failures_total"], 1);
    assert_eq!(seen["idmill_waits_total"], 2);
    assert_eq!(seen["idmill_gaps_totalunknown"], 10);
    assert_eq!(seen["idmill_remaining"], 8);
    assert!(seen["idmill_seconds_to_exhaustion"] > 0);
    assert!(seen["idmill_last_grant_timestamp_seconds"] > 1_700_000_000);
    assert_eq!((seen["idmill_failures_in_a_row"], seen["idmill_health"]), (0, 2));
    assert_eq!((seen["idmill_reserve_secondsgranted"], seen["idmill_reserve_secondsunknown"]), (2, 1));
    assert_eq!(seen.len(), 20);

    ids.close_blocking().unwrap();
    let seen = read(&snapshotter);
    assert_eq!((seen["idmill_given_back_total"], seen["idmill_gaps_totalrevoked"]), (8, 0));
    an_outage_shows_while_it_lasts(&snapshotter);
    every_metric_is_described_and_on_the_page(&snapshotter);
}

/// Of one recorder, which a process has one of: hence no test of its own.
fn an_outage_shows_while_it_lasts(snapshotter: &Snapshotter) {
    let store = MemoryStore::new();
    let ids = Sequences::builder(store.clone()).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).open_blocking().unwrap();
    let hour = Duration::from_secs(3600);
    assert_eq!(orders.next_blocking(hour).unwrap(), 1);
    store.set_faults(Faults::outage());
    assert_eq!(orders.take_blocking(9, hour).unwrap().len(), 9);
    let waiting = orders.clone();
    let caller = std::thread::spawn(move || waiting.next_blocking(hour).unwrap());
    // For as long as the store is away nothing else happens; the caller waits all the time.
    let limit = Instant::now() + Duration::from_secs(60);
    let seen = loop {
        ids.record_metrics();
        let seen = read(snapshotter);
        if seen["idmill_dry_milliseconds_total"] > 0 && seen["idmill_failures_in_a_row"] > 0 {
            break seen;
        }
        assert!(Instant::now() < limit, "nobody is told: {seen:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((seen["idmill_health"], orders.snapshot().health()), (0, Health::Dry));
    store.set_faults(Faults::none());
    assert_eq!(caller.join().unwrap(), 11);
    ids.record_metrics();
    let seen = read(snapshotter);
    assert_eq!((seen["idmill_health"], seen["idmill_failures_in_a_row"]), (2, 0));
    assert_eq!(orders.snapshot().health(), Health::Serving);
    // The caller hears of its ids a moment before it counts as served.
    while orders.snapshot().is_dry {
        assert!(Instant::now() < limit, "it counts as waiting for ever");
        std::thread::yield_now();
    }
    ids.close_blocking().unwrap();
}

fn every_metric_is_described_and_on_the_page(snapshotter: &Snapshotter) {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap();
    let store = MemoryStore::new();
    let ids = Sequences::builder(store).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").open_blocking().unwrap();
    assert_eq!(orders.next_blocking(Duration::from_secs(3600)).unwrap(), 1);
    ids.record_metrics();
    for (key, unit, description, _) in snapshotter.snapshot().into_vec() {
        let name = key.key().name();
        assert!(
            unit.is_some() && description.is_some_and(|text| !text.is_empty()),
            "{name} is not described"
        );
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not on the page");
    }
    ids.close_blocking().unwrap();
}

/// What there is, by its name and labels but the sequence's.
fn read(snapshotter: &Snapshotter) -> HashMap<String, u64> {
    let mut seen = HashMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        assert_eq!(labels[0], "orders");
        let value = match value {
            DebugValue::Counter(value) => value,
            // Whole numbers below 2^53, but for the estimates.
            DebugValue::Gauge(value) => value.0 as u64,
            DebugValue::Histogram(values) => values.len() as u64,
        };
        seen.insert(format!("{}{}", key.key().name(), labels[1..].concat()), value);
    }
    seen
}
