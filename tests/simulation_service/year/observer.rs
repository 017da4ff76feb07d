//! Counts metric series and lines in the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

use super::figures::Figures;

/// Keeps the values of gauges, and only the names of other metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct Observer(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    series: Mutex<HashMap<Key, Arc<AtomicU64>>>,
    lines: AtomicU64,
}

impl Observer {
    /// Runs with this log and this recorder, on this thread.
    pub(super) fn observe<R>(&self, run: impl FnOnce() -> R) -> R {
        let run = || metrics::with_local_recorder(self, run);
        tracing::subscriber::with_default(self.clone(), run)
    }

    /// Returns the figures of the day that ends now.
    pub(super) fn day(&self) -> Figures {
        let lines = self.0.lines.swap(0, Ordering::Relaxed);
        Figures { series: self.0.series.lock().len(), lines, ..Figures::default() }
    }

    /// Returns the values of a gauge, by sequence.
    pub(super) fn gauge(&self, name: &str) -> Vec<(String, f64)> {
        let series = self.0.series.lock();
        let of_it = series.iter().filter(|(key, _)| key.name() == name);
        let value = |(key, value): (&Key, &Arc<AtomicU64>)| {
            let sequence = key.labels().next().expect("a label").value().to_owned();
            (sequence, f64::from_bits(value.load(Ordering::Relaxed)))
        };
        of_it.map(value).collect()
    }

    fn value(&self, key: &Key) -> Arc<AtomicU64> {
        let mut series = self.0.series.lock();
        match series.get(key) {
            Some(value) => value.clone(),
            None => series.entry(key.clone()).or_default().clone(),
        }
    }
}

impl Recorder for Observer {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.value(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.value(key);
        Histogram::noop()
    }
}

impl Subscriber for Observer {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, _: &Event<'_>) {
        self.0.lines.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
