//! Compares results of `idmill bench` with published figures for sequences on Cloud Spanner.
//!
//! The machines, the databases and the years differ, so only ratios are compared: the throughput relative to
//! the in-transaction mode of the same run, and the 99th percentile relative to the simulated transaction.
//! The published percentiles are probably not corrected for coordinated omission.

use std::fmt::Write as _;

use serde_json::Value;

use crate::plot::{Bars, Group, bars_svg, scaled};

/// The settings of the published runs, as options of `idmill bench`.
pub const SETTINGS: [&str; 10] = [
    "--mode",
    "in-transaction,async,batch,async-batch",
    "--threads",
    "10,50",
    "--transaction",
    "10ms",
    "--step",
    "200",
    "--watermark",
    "50",
];

/// Every published run simulated a transaction of this length around each id.
const TRANSACTION_MS: f64 = 10.0;
const REFERENCE: &str = "in-transaction";

/// Each published run: the mode, the number of threads, the transactions per second, and the 99th percentile
/// of their latencies in milliseconds.
const PUBLISHED: [(&str, u64, f64, f64); 8] = [
    (REFERENCE, 10, 34.0, 2703.0),
    ("async", 10, 66.5, 1460.0),
    ("batch", 10, 494.0, 38.0),
    ("async-batch", 10, 512.0, 30.0),
    (REFERENCE, 50, 30.6, 5982.0),
    ("async", 50, 78.1, 3442.0),
    ("batch", 50, 1195.0, 168.0),
    ("async-batch", 50, 1622.0, 30.0),
];

/// Measured and published figures of each published run.
#[derive(Debug)]
pub struct Comparison(Vec<Run>);

/// A published run, and the measured run with the same settings.
#[derive(Debug)]
struct Run {
    mode: &'static str,
    threads: u64,
    /// Measured latencies in milliseconds: p50, p90, p99 and maximum.
    times_ms: [f64; 4],
    /// Measured and published.
    values_per_second: [f64; 2],
    /// The throughput relative to the in-transaction mode with the same number of threads: measured and
    /// published.
    throughput: [f64; 2],
    /// The 99th percentile relative to the transaction: measured and published.
    p99: [f64; 2],
}

const SHOWN: [&str; 4] = ["p50", "p90", "p99", "max"];

impl Comparison {
    /// Reads the JSON of `idmill bench` with the [settings](SETTINGS) of the published runs.
    ///
    /// # Panics
    /// If a run is missing.
    pub fn of(json: &str) -> Self {
        let report: Value = serde_json::from_str(json).expect("`idmill bench` writes JSON");
        let row = |mode: &str, threads: u64| {
            let found = |run: &&Value| run["mode"] == mode && run["threads"] == threads;
            let runs = report["runs"].as_array().expect("an array of runs");
            runs.iter().find(found).unwrap_or_else(|| panic!("no run of {mode} with {threads} threads"))
        };
        let speed = |mode, threads| number(&row(mode, threads)["values_per_second"]);
        let compared = PUBLISHED.iter().map(|&(mode, threads, published, p99_ms)| {
            let times_ms = SHOWN.map(|name| number(&row(mode, threads)["corrected_ms"][name]));
            let values_per_second = [speed(mode, threads), published];
            let [here, there] = [speed(REFERENCE, threads), published_reference(threads)];
            Run {
                mode,
                threads,
                times_ms,
                values_per_second,
                throughput: [values_per_second[0] / here, published / there],
                p99: [times_ms[2], p99_ms].map(|ms| ms / TRANSACTION_MS),
            }
        });
        Self(compared.collect())
    }

    /// Returns the comparison as a table in Markdown. Columns come in pairs: measured and published.
    pub fn markdown(&self) -> String {
        let mut table = "\
| mode | threads | values/s | published | x in-transaction | published | p99 / transaction | published |
|---|---:|---:|---:|---:|---:|---:|---:|
"
        .to_owned();
        for run in &self.0 {
            let figures = [run.values_per_second, run.throughput, run.p99].concat();
            let cells: Vec<_> = figures.into_iter().map(digits).collect();
            writeln!(table, "| {} | {} | {} |", run.mode, run.threads, cells.join(" | "))
                .expect("a write to memory succeeds");
        }
        table
    }

    /// Returns an SVG chart of the throughput, the latencies, and the comparison.
    pub fn svg(&self) -> String {
        let published = ["here", "published, on Cloud Spanner"];
        // Skip the reference mode, which would always be a bar of 1.
        let others = self.0.iter().filter(|run| run.mode != REFERENCE);
        bars_svg(&[
            bars("Values a second", &["values/s"], rate, &self.0, |run| vec![run.values_per_second[0]]),
            bars("Milliseconds a transaction", &SHOWN, digits, &self.0, |run| run.times_ms.to_vec()),
            bars(
                "Values per second, relative to the in-transaction mode at the same thread count",
                &published,
                digits,
                others,
                |run| run.throughput.to_vec(),
            ),
        ])
    }
}

/// Returns the published throughput of the reference mode.
fn published_reference(threads: u64) -> f64 {
    let reference = PUBLISHED.iter().find(|run| (run.0, run.1) == (REFERENCE, threads));
    reference.expect("the run is in the table").2
}

fn bars<'a>(
    title: &str,
    legend: &[&str],
    label: fn(f64) -> String,
    runs: impl IntoIterator<Item = &'a Run>,
    values: impl Fn(&Run) -> Vec<f64>,
) -> Bars {
    let group = |run: &Run| Group { name: format!("{} × {}", run.mode, run.threads), values: values(run) };
    let legend = legend.iter().map(ToString::to_string).collect();
    Bars { title: title.to_owned(), legend, log: true, label, groups: runs.into_iter().map(group).collect() }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Formats two decimals below 10, one below 100, and none from 100.
fn digits(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn rate(per_second: f64) -> String {
    let (value, unit) = scaled(per_second);
    digits(value) + unit
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns results whose throughputs and latencies grow from mode to mode.
    fn measured() -> String {
        let run = |(n, (mode, threads, ..)): (usize, &(&str, u64, f64, f64))| {
            let n = (n % 4 + 1) as f64;
            let ms = json!({ "p50": n, "p75": n, "p90": n, "p99": 20.0 * n, "p99_9": n, "max": 40.0 * n });
            let speed = *threads as f64 * n;
            json!({ "mode": mode, "threads": threads, "values_per_second": speed, "corrected_ms": ms })
        };
        let runs: Vec<_> = PUBLISHED.iter().enumerate().map(run).collect();
        json!({ "transaction_ms": 10.0, "runs": runs }).to_string()
    }

    #[test]
    fn published_figures_are_compared_with_the_runs() {
        let comparison = Comparison::of(&measured());
        assert_eq!(
            comparison.markdown(),
            "\
| mode | threads | values/s | published | x in-transaction | published | p99 / transaction | published |
|---|---:|---:|---:|---:|---:|---:|---:|
| in-transaction | 10 | 10.0 | 34.0 | 1.00 | 1.00 | 2.00 | 270 |
| async | 10 | 20.0 | 66.5 | 2.00 | 1.96 | 4.00 | 146 |
| batch | 10 | 30.0 | 494 | 3.00 | 14.5 | 6.00 | 3.80 |
| async-batch | 10 | 40.0 | 512 | 4.00 | 15.1 | 8.00 | 3.00 |
| in-transaction | 50 | 50.0 | 30.6 | 1.00 | 1.00 | 2.00 | 598 |
| async | 50 | 100 | 78.1 | 2.00 | 2.55 | 4.00 | 344 |
| batch | 50 | 150 | 1195 | 3.00 | 39.1 | 6.00 | 16.8 |
| async-batch | 50 | 200 | 1622 | 4.00 | 53.0 | 8.00 | 3.00 |
"
        );
        let svg = comparison.svg();
        assert_eq!(
            svg.matches("in-transaction × 10").count(),
            2,
            "the reference is not compared with itself"
        );
        assert_eq!(svg.matches("async × 50").count(), 3);
        assert!(svg.contains("published, on Cloud Spanner"), "{svg}");
    }

    #[test]
    #[should_panic(expected = "no run of async-batch with 50 threads")]
    fn missing_run_is_reported() {
        let mut report: Value = serde_json::from_str(&measured()).unwrap();
        report["runs"].as_array_mut().unwrap().pop();
        Comparison::of(&report.to_string());
    }

    #[test]
    fn rates_from_a_thousand_have_a_unit() {
        assert_eq!([81.3, 999.0, 4926.0].map(rate), ["81.3", "999", "4.93 k"]);
    }
}
