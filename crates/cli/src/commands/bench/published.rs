//! What was measured beside the figures that were published for sequences on Cloud Spanner.
//!
//! The machines, the databases and the years differ, so what is compared are ratios: how much faster a
//! mode is than the in-transaction mode of the same run, and how much longer than the simulated
//! transaction its slow ones take.

use std::time::Duration;

use serde::Serialize;

use super::row::Row;
use crate::args::{Bench, Mode};
use crate::output::{Sheet, digits};

/// Of the published runs, each with this transaction around every id.
const TRANSACTION_MS: f64 = 10.0;

/// One published run: transactions a second, and percentiles of their times.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    values_per_second: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
}

impl Figures {
    fn over(self, in_transaction: Self) -> Ratios {
        Ratios {
            throughput_over_in_transaction: self.values_per_second / in_transaction.values_per_second,
            p99_over_transaction: self.p99_ms / TRANSACTION_MS,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Published {
    mode: Mode,
    threads: u16,
    figures: Figures,
}

const fn run(
    mode: Mode,
    threads: u16,
    values_per_second: f64,
    [p50_ms, p90_ms, p99_ms]: [f64; 3],
) -> Published {
    Published { mode, threads, figures: Figures { values_per_second, p50_ms, p90_ms, p99_ms } }
}

const PUBLISHED: [Published; 8] = [
    run(Mode::InTransaction, 10, 34.0, [27.0, 1189.0, 2703.0]),
    run(Mode::Async, 10, 66.5, [28.0, 611.0, 1460.0]),
    run(Mode::Batch, 10, 494.0, [18.0, 20.0, 38.0]),
    run(Mode::AsyncBatch, 10, 512.0, [18.0, 20.0, 30.0]),
    run(Mode::InTransaction, 50, 30.6, [1191.0, 3513.0, 5982.0]),
    run(Mode::Async, 50, 78.1, [29.0, 1695.0, 3442.0]),
    run(Mode::Batch, 50, 1195.0, [27.0, 55.0, 168.0]),
    run(Mode::AsyncBatch, 50, 1622.0, [24.0, 28.0, 30.0]),
];

/// The settings of the published runs, whatever the others say; how long to measure stays the caller's.
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

/// A run beside the published one.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    pub(super) mode: &'static str,
    pub(super) threads: u16,
    pub(super) here: Ratios,
    pub(super) published: Ratios,
    published_figures: Figures,
    #[serde(skip)]
    values_per_second: f64,
}

/// Over the in-transaction mode with as many threads, and over the simulated transaction.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ratios {
    pub(super) throughput_over_in_transaction: f64,
    p99_over_transaction: f64,
}

impl Compared {
    /// Whether it is the one that the others are set beside.
    pub(super) fn is_base(&self) -> bool {
        self.mode == Mode::InTransaction.name()
    }
}

/// Each published run beside the one of `rows`, which were measured with its settings.
pub(super) fn compare(rows: &[Row], transaction_ms: f64) -> Vec<Compared> {
    let row = |mode: Mode, threads| {
        rows.iter().find(|row| (row.mode, row.threads) == (mode.name(), threads)).expect("was measured")
    };
    let compared = PUBLISHED.iter().map(|run| {
        let Published { mode, threads, figures } = *run;
        let (here, base) = (row(mode, threads), row(Mode::InTransaction, threads));
        let theirs = published(Mode::InTransaction, threads);
        Compared {
            mode: mode.name(),
            threads,
            here: Ratios {
                throughput_over_in_transaction: here.values_per_second / base.values_per_second,
                p99_over_transaction: here.corrected_ms.p99 / transaction_ms,
            },
            published: figures.over(theirs),
            published_figures: figures,
            values_per_second: here.values_per_second,
        }
    });
    compared.collect()
}

fn published(mode: Mode, threads: u16) -> Figures {
    let run = PUBLISHED.iter().find(|run| (run.mode, run.threads) == (mode, threads));
    run.expect("is in the table").figures
}

/// The columns come in pairs: here, and as published.
pub(super) fn sheet(compared: &[Compared]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "MODE",
        "THREADS",
        "VALUES/S",
        "PUBLISHED",
        "X IN-TRANSACTION",
        "PUBLISHED",
        "P99 / TRANSACTION",
        "PUBLISHED",
    ]);
    for run in compared {
        let (here, published) = (run.here, run.published);
        sheet.push(vec![
            run.mode.to_owned(),
            run.threads.to_string(),
            digits(run.values_per_second),
            digits(run.published_figures.values_per_second),
            digits(here.throughput_over_in_transaction),
            digits(published.throughput_over_in_transaction),
            digits(here.p99_over_transaction),
            digits(published.p99_over_transaction),
        ]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_ratios_are_those_of_the_published_figures() {
        let ratio = |mode, threads| {
            let of = |mode| published(mode, threads).values_per_second;
            digits(of(mode) / of(Mode::InTransaction))
        };
        assert_eq!([ratio(Mode::AsyncBatch, 10), ratio(Mode::AsyncBatch, 50)], ["15.1", "53.0"]);
        assert_eq!([ratio(Mode::Batch, 10), ratio(Mode::Batch, 50)], ["14.5", "39.1"]);
    }
}
