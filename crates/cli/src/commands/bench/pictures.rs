//! The results as a picture: throughput, and how long transactions took, by mode.

use super::published::Compared;
use super::report::Report;
use super::row::Row;
use crate::output::{digits, rate};
use crate::plot::{Bars, Group, bars_svg};

pub(super) fn svg(report: &Report) -> String {
    let name = |row: &Row| format!("{} × {}", row.mode, row.threads);
    let throughput = Bars {
        title: "Values a second".to_owned(),
        legend: vec!["values/s".to_owned()],
        log: true,
        label: rate,
        groups: report
            .runs
            .iter()
            .map(|row| Group { name: name(row), values: vec![row.values_per_second] })
            .collect(),
    };
    let [p50, _, p90, p99, _, max] = ["p50", "p75", "p90", "p99", "p99.9", "max"];
    let times = Bars {
        title: "Milliseconds a transaction".to_owned(),
        legend: [p50, p90, p99, max].map(str::to_owned).to_vec(),
        log: true,
        label: digits,
        groups: report
            .runs
            .iter()
            .map(|row| {
                let [p50, _, p90, p99, _, max] = row.corrected_ms.all();
                Group { name: name(row), values: vec![p50, p90, p99, max] }
            })
            .collect(),
    };
    let compared = report.published.as_deref().map(beside_published);
    bars_svg(&[throughput, times].into_iter().chain(compared).collect::<Vec<_>>())
}

fn beside_published(compared: &[Compared]) -> Bars {
    // The mode that the others are set beside would be a bar of 1 each time.
    let others = compared.iter().filter(|run| !run.is_base());
    Bars {
        title: "Times the values a second of in-transaction with as many threads".to_owned(),
        legend: vec!["here".to_owned(), "published, on Cloud Spanner".to_owned()],
        log: true,
        label: digits,
        groups: others
            .map(|run| Group {
                name: format!("{} × {}", run.mode, run.threads),
                values: [run.here, run.published]
                    .map(|ratios| ratios.throughput_over_in_transaction)
                    .to_vec(),
            })
            .collect(),
    }
}
