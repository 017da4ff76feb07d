//! What the `metrics` facade is told.

#![cfg(feature = "metrics")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of gauges that are whole and small

use std::collections::HashMap;
use std::sync::Arc;

use idmill::Sequences;
use idmill::store::{Fault, Faults, MemoryStore, Store};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

#[test]
fn what_happened_is_recorded_under_the_sequences_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let store = MemoryStore::with_faults(Faults::default().script([Fault::LostReply]));
    let ids = Sequences::builder(Arc::new(store) as Arc<dyn Store>).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).open_blocking().unwrap();
    for _ in 0..12 {
        let _ = orders.next_blocking(std::time::Duration::from_secs(60)).unwrap();
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
    assert_eq!(seen.len(), 15);

    ids.close_blocking();
    let seen = read(&snapshotter);
    assert_eq!((seen["idmill_given_back_total"], seen["idmill_gaps_totalrevoked"]), (8, 0));
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
            DebugValue::Histogram(_) => panic!("there are none"),
        };
        seen.insert(format!("{}{}", key.key().name(), labels[1..].concat()), value);
    }
    seen
}
