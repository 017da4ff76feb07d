//! Compares a run with published figures for sequences on Cloud Spanner.
//!
//! The machines, the databases and the years differ, so only ratios are compared: the throughput relative to
//! the in-transaction mode of the same run, and the 99th percentile relative to the simulated transaction.

use std::time::Duration;

use serde::Serialize;

use super::Row;
use crate::args::{Bench, Mode, spelled};
use crate::output::{Sheet, digits};

/// Every published run simulated a transaction of this length around each id.
const TRANSACTION_MS: f64 = 10.0;

/// A published run: transactions per second, and percentiles of their latencies.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    values_per_second: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
}

const fn figures(values_per_second: f64, p50_ms: f64, p90_ms: f64, p99_ms: f64) -> Figures {
    Figures { values_per_second, p50_ms, p90_ms, p99_ms }
}

const PUBLISHED: [(Mode, u16, Figures); 8] = [
    (Mode::InTransaction, 10, figures(34.0, 27.0, 1189.0, 2703.0)),
    (Mode::Async, 10, figures(66.5, 28.0, 611.0, 1460.0)),
    (Mode::Batch, 10, figures(494.0, 18.0, 20.0, 38.0)),
    (Mode::AsyncBatch, 10, figures(512.0, 18.0, 20.0, 30.0)),
    (Mode::InTransaction, 50, figures(30.6, 1191.0, 3513.0, 5982.0)),
    (Mode::Async, 50, figures(78.1, 29.0, 1695.0, 3442.0)),
    (Mode::Batch, 50, figures(1195.0, 27.0, 55.0, 168.0)),
    (Mode::AsyncBatch, 50, figures(1622.0, 24.0, 28.0, 30.0)),
];

/// Returns the settings of the published runs. The other settings of `args`, such as the duration, are kept.
pub(super) fn settings(args: Bench) -> Bench {
    Bench {
        mode: vec![Mode::InTransaction, Mode::Async, Mode::Batch, Mode::AsyncBatch],
        threads: vec![10, 50],
        transaction: Duration::from_millis(10),
        step: 200,
        watermark: 50,
        ..args
    }
}

/// A measured run, and the published run with the same settings.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    pub(super) mode: Mode,
    pub(super) threads: u16,
    here: Ratios,
    published: Ratios,
    published_figures: Figures,
    #[serde(skip)]
    values_per_second: f64,
}

/// Figures relative to the in-transaction mode with the same number of threads, and to the simulated
/// transaction.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratios {
    throughput_over_in_transaction: f64,
    p99_over_transaction: f64,
}

impl Compared {
    /// Returns the throughput relative to the in-transaction mode: measured and published.
    pub(super) fn throughputs(&self) -> [f64; 2] {
        [self.here, self.published].map(|ratios| ratios.throughput_over_in_transaction)
    }
}

/// Compares each published run with the matching row. The rows must have been measured with the published
/// settings.
pub(super) fn compare(rows: &[Row], transaction_ms: f64) -> Vec<Compared> {
    let row = |mode: Mode, threads: u16| {
        rows.iter().find(|row| (row.mode, row.threads) == (mode, threads)).expect("the row was measured")
    };
    let compared = PUBLISHED.iter().map(|&(mode, threads, figures)| {
        let (here, base) = (row(mode, threads), row(Mode::InTransaction, threads));
        Compared {
            mode,
            threads,
            here: Ratios {
                throughput_over_in_transaction: here.values_per_second / base.values_per_second,
                p99_over_transaction: here.corrected_ms["p99"] / transaction_ms,
            },
            published: ratios(threads, figures),
            published_figures: figures,
            values_per_second: here.values_per_second,
        }
    });
    compared.collect()
}

fn ratios(threads: u16, figures: Figures) -> Ratios {
    let base = PUBLISHED.iter().find(|run| (run.0, run.1) == (Mode::InTransaction, threads));
    let base = base.expect("the run is in the table").2;
    Ratios {
        throughput_over_in_transaction: figures.values_per_second / base.values_per_second,
        p99_over_transaction: figures.p99_ms / TRANSACTION_MS,
    }
}

/// Returns the table. Columns come in pairs: measured and published.
pub(super) fn sheet(compared: &[Compared]) -> Sheet {
    const HEADINGS: [&str; 8] = [
        "MODE",
        "THREADS",
        "VALUES/S",
        "PUBLISHED",
        "X IN-TRANSACTION",
        "PUBLISHED",
        "P99 / TRANSACTION",
        "PUBLISHED",
    ];
    let rows = compared.iter().map(|run| {
        let [here, published] = run.throughputs();
        let figures = [
            run.values_per_second,
            run.published_figures.values_per_second,
            here,
            published,
            run.here.p99_over_transaction,
            run.published.p99_over_transaction,
        ];
        [spelled(&run.mode), run.threads.to_string()].into_iter().chain(figures.map(digits)).collect()
    });
    Sheet::of(&HEADINGS, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ratios_match_the_published_figures() {
        let ratio = |mode, threads| {
            let run = PUBLISHED.iter().find(|run| (run.0, run.1) == (mode, threads)).unwrap();
            digits(ratios(threads, run.2).throughput_over_in_transaction)
        };
        assert_eq!([ratio(Mode::AsyncBatch, 10), ratio(Mode::AsyncBatch, 50)], ["15.1", "53.0"]);
        assert_eq!([ratio(Mode::Batch, 10), ratio(Mode::Batch, 50)], ["14.5", "39.1"]);
    }
}
