//! The results as tables, as JSON and as a picture.

use serde::Serialize;

use super::Row;
use super::published::{self, Compared};
use crate::args::{Bench, Mode, spelled};
use crate::opening::Measured;
use crate::output::{Sheet, digits, rate};
use crate::plot::{Bars, Group, bars_svg};

/// The results of a bench. Names and meanings of the fields are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// The URL of the store.
    store: String,
    transaction_ms: f64,
    step: u64,
    watermark: u64,
    runs: Vec<Row>,
    /// `null` without `--published`.
    published: Option<Vec<Compared>>,
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

    /// Returns the tables, with a line before the first and before the published one.
    pub(super) fn human(&self, markdown: bool) -> String {
        let sheet = |sheet: &Sheet| if markdown { sheet.markdown() } else { sheet.text() };
        // Without an empty line, Markdown would join the table to the line above.
        let gap = if markdown { "\n" } else { "" };
        let hold = digits(self.transaction_ms);
        let times = ["MODE", "THREADS", "VALUES/S", "P50", "P75", "P90", "P99", "P99.9", "MAX"];
        let counts = ["MODE", "THREADS", "VALUES", "RESERVES", "WAITED", "GAPS", "LEFT", "RETRIES"];
        let mut text = format!(
            "Transaction times in ms, with {hold} ms of work each, corrected for coordinated \
             omission:\n{gap}{}\n{}",
            sheet(&Sheet::of(&times, self.runs.iter().map(Row::times))),
            sheet(&Sheet::of(&counts, self.runs.iter().map(Row::counts)))
        );
        if let Some(compared) = &self.published {
            text += "\nEach measured column is followed by the column published for Cloud Spanner:\n";
            text += &[gap, &sheet(&published::sheet(compared))].concat();
        }
        text
    }

    /// Returns an SVG chart of the throughput and the latencies by mode.
    pub(super) fn svg(&self) -> String {
        let shown = ["p50", "p90", "p99", "max"];
        let rates = self.runs.iter().map(|row| (row.mode, row.threads, vec![row.values_per_second]));
        let times = self
            .runs
            .iter()
            .map(|row| (row.mode, row.threads, shown.map(|at| row.corrected_ms[at]).to_vec()));
        let mut pictures = vec![
            bars("Values a second", &["values/s"], rate, rates),
            bars("Milliseconds a transaction", &shown, digits, times),
        ];
        if let Some(compared) = &self.published {
            // Skip the reference mode, which would always be a bar of 1.
            let others = compared.iter().filter(|run| run.mode != Mode::InTransaction);
            pictures.push(bars(
                "Values per second, relative to the in-transaction mode at the same thread count",
                &["here", "published, on Cloud Spanner"],
                digits,
                others.map(|run| (run.mode, run.threads, run.throughputs().to_vec())),
            ));
        }
        bars_svg(&pictures)
    }
}

fn bars(
    title: &str,
    legend: &[&str],
    label: fn(f64) -> String,
    runs: impl Iterator<Item = (Mode, u16, Vec<f64>)>,
) -> Bars {
    let group = |(mode, threads, values)| Group { name: format!("{} × {threads}", spelled(&mode)), values };
    let legend = legend.iter().map(ToString::to_string).collect();
    Bars { title: title.to_owned(), legend, log: true, label, groups: runs.map(group).collect() }
}
