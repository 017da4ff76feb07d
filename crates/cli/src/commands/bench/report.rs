//! The results as tables and as JSON.

use serde::Serialize;

use super::Row;
use crate::args::Bench;
use crate::opening::Measured;
use crate::output::{Sheet, digits};

/// The results of a bench. Names and meanings of the fields are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// The URL of the store.
    store: String,
    transaction_ms: f64,
    step: u64,
    watermark: u64,
    runs: Vec<Row>,
}

impl Report {
    pub(super) fn new(store: &Measured, args: &Bench, runs: Vec<Row>) -> Self {
        Self {
            store: store.url.to_string(),
            transaction_ms: args.transaction.as_secs_f64() * 1e3,
            step: args.step,
            watermark: args.watermark,
            runs,
        }
    }

    /// Returns the tables, with a line before the first.
    pub(super) fn human(&self, markdown: bool) -> String {
        let sheet = |sheet: &Sheet| if markdown { sheet.markdown() } else { sheet.text() };
        // Without an empty line, Markdown would join the table to the line above.
        let gap = if markdown { "\n" } else { "" };
        let hold = digits(self.transaction_ms);
        let times = ["MODE", "THREADS", "VALUES/S", "P50", "P75", "P90", "P99", "P99.9", "MAX"];
        let counts = ["MODE", "THREADS", "VALUES", "RESERVES", "WAITED", "GAPS", "LEFT", "RETRIES"];
        format!(
            "Transaction times in ms, with {hold} ms of work each, corrected for coordinated \
             omission:\n{gap}{}\n{}",
            sheet(&Sheet::of(&times, self.runs.iter().map(Row::times))),
            sheet(&Sheet::of(&counts, self.runs.iter().map(Row::counts)))
        )
    }
}
