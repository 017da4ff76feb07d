//! What was measured, as a table and as JSON.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::callers::Seen;
use super::modes::Subject;
use super::published::{self, Compared};
use crate::args::{Bench, Mode};
use crate::opening::Measured;
use crate::output::{Sheet, digits, rate};
use crate::times::millis_at;

/// The whole of a bench. Names and meanings of the fields are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// The URL of the store measured in.
    store: String,
    transaction_ms: f64,
    step: u64,
    watermark: u64,
    pub(super) runs: Vec<Row>,
    /// `null` unless asked for.
    pub(super) published: Option<Vec<Compared>>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) mode: &'static str,
    pub(super) threads: u16,
    values: u64,
    seconds: f64,
    pub(super) values_per_second: f64,
    /// Of a transaction, corrected for coordinated omission.
    pub(super) corrected_ms: Percentiles,
    /// Of a transaction, as it was.
    times_ms: Percentiles,
    /// Round trips that took ids from the store.
    reserves: u64,
    /// What follows is `null` for modes that keep nothing in memory.
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
}

impl Report {
    pub(super) fn new(store: &Measured, args: &Bench, runs: Vec<Row>) -> Self {
        let transaction_ms = args.transaction.as_secs_f64() * 1e3;
        Self {
            store: store.url.to_string(),
            transaction_ms,
            step: args.step,
            watermark: args.watermark,
            published: args.published.then(|| published::compare(&runs, transaction_ms)),
            runs,
        }
    }

    /// The tables, one below the other, each after a line that says what it shows.
    pub(super) fn human(&self, markdown: bool) -> String {
        let sheet = |sheet: &Sheet| if markdown { sheet.markdown() } else { sheet.text() };
        // Without an empty line between them, Markdown takes what follows for the same paragraph.
        let gap = if markdown { "\n" } else { "" };
        let hold = digits(self.transaction_ms);
        let mut text = format!(
            "Milliseconds a transaction that works for {hold} ms, corrected for coordinated omission:\n{gap}{}\n{}",
            sheet(&self.times()),
            sheet(&self.counts())
        );
        if let Some(compared) = &self.published {
            text += "\nBeside what was published for Cloud Spanner, each after what was measured here:\n";
            text += &[gap, &sheet(&published::sheet(compared))].concat();
        }
        text
    }

    fn times(&self) -> Sheet {
        let mut sheet =
            Sheet::new(&["MODE", "THREADS", "VALUES/S", "P50", "P75", "P90", "P99", "P99.9", "MAX"]);
        for row in &self.runs {
            let mut cells = vec![row.mode.to_owned(), row.threads.to_string(), rate(row.values_per_second)];
            cells.extend(row.corrected_ms.all().map(digits));
            sheet.push(cells);
        }
        sheet
    }

    fn counts(&self) -> Sheet {
        let mut sheet =
            Sheet::new(&["MODE", "THREADS", "VALUES", "RESERVES", "WAITED", "GAPS", "LEFT", "RETRIES"]);
        self.runs.iter().for_each(|row| sheet.push(row.counts()));
        sheet
    }
}

impl Row {
    fn counts(&self) -> Vec<String> {
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
