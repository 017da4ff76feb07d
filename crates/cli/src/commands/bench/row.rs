//! One measurement.

use serde::Serialize;

use super::Seen;
use super::subject::Subject;
use crate::args::{Mode, spelled};
use crate::measuring::{Counts, Percentiles, percentiles};
use crate::output::{digits, rate};

pub(super) const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("max", 1.0)];

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) mode: Mode,
    pub(super) threads: u16,
    pub(super) values: u64,
    pub(super) seconds: f64,
    pub(super) values_per_second: f64,
    /// Times of a transaction, corrected for coordinated omission.
    pub(super) corrected_ms: Percentiles<f64>,
    /// Times of a transaction, as measured.
    times_ms: Percentiles<f64>,
    /// `null` for modes that keep nothing in memory, but for the reserves.
    #[serde(flatten)]
    pub(super) counts: Counts,
    retries: u64,
}

impl Row {
    pub(super) fn new(mode: Mode, threads: u16, seen: &Seen, subject: &Subject) -> Self {
        let seconds = seen.elapsed.as_secs_f64();
        let in_millis = |micros: u64| micros as f64 / 1e3;
        Self {
            mode,
            threads,
            values: seen.values,
            seconds,
            values_per_second: seen.values as f64 / seconds,
            corrected_ms: percentiles(&seen.corrected, &QUANTILES, in_millis),
            times_ms: percentiles(&seen.times, &QUANTILES, in_millis),
            counts: subject.counts(seen.times.len()),
            retries: seen.retries,
        }
    }

    pub(super) fn times(&self) -> Vec<String> {
        let mut cells = vec![spelled(&self.mode), self.threads.to_string(), rate(self.values_per_second)];
        cells.extend(QUANTILES.iter().map(|(name, _)| digits(self.corrected_ms[name])));
        cells
    }

    pub(super) fn counts(&self) -> Vec<String> {
        let mut cells = vec![spelled(&self.mode), self.threads.to_string(), self.values.to_string()];
        cells.extend(self.counts.cells());
        cells.push(self.retries.to_string());
        cells
    }
}
