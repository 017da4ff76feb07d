//! One measurement, as it is reported.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::callers::Seen;
use super::modes::Subject;
use crate::args::Mode;
use crate::measuring::millis_at;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) mode: &'static str,
    pub(super) threads: u16,
    values: u64,
    seconds: f64,
    pub(super) values_per_second: f64,
    /// Times of a transaction, corrected for coordinated omission.
    pub(super) corrected_ms: Percentiles,
    /// Times of a transaction, as measured.
    times_ms: Percentiles,
    /// Round trips that took ids from the store.
    reserves: u64,
    /// The next three are `null` for modes that keep nothing in memory.
    waits: Option<u64>,
    gaps: Option<u64>,
    left: Option<u64>,
    retries: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Percentiles {
    p50: f64,
    p75: f64,
    p90: f64,
    pub(super) p99: f64,
    p99_9: f64,
    max: f64,
}

impl Percentiles {
    fn of(micros: &Histogram<u64>) -> Self {
        let at = |quantile| millis_at(micros, quantile);
        let max = micros.max() as f64 / 1e3;
        Self { p50: at(0.5), p75: at(0.75), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max }
    }

    pub(super) fn all(&self) -> [f64; 6] {
        [self.p50, self.p75, self.p90, self.p99, self.p99_9, self.max]
    }
}

impl Row {
    pub(super) fn new(mode: Mode, threads: u16, seen: &Seen, subject: &Subject) -> Self {
        let (seconds, snapshot) = (seen.elapsed.as_secs_f64(), subject.snapshot());
        let snapshot = snapshot.as_ref();
        Self {
            mode: mode.name(),
            threads,
            values: seen.values,
            seconds,
            values_per_second: seen.values as f64 / seconds,
            corrected_ms: Percentiles::of(&seen.corrected),
            times_ms: Percentiles::of(&seen.times),
            reserves: subject.reserves(seen.times.len()),
            waits: subject.waits(),
            gaps: snapshot.map(|seen| seen.gaps.total()),
            left: snapshot.map(|seen| seen.remaining),
            retries: seen.retries,
        }
    }

    /// The cells of the second table.
    pub(super) fn counts(&self) -> Vec<String> {
        let count = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        vec![
            self.mode.to_owned(),
            self.threads.to_string(),
            self.values.to_string(),
            self.reserves.to_string(),
            count(self.waits),
            count(self.gaps),
            count(self.left),
            self.retries.to_string(),
        ]
    }
}
