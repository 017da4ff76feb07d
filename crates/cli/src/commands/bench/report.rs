//! What was measured, as a table and as JSON.

use serde::Serialize;

use super::published::{self, Compared};
use super::row::Row;
use crate::args::Bench;
use crate::opening::Measured;
use crate::output::{Sheet, digits, rate};

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
