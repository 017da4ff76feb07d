//! What was measured, as tables and as JSON.

use idmill::Snapshot;
use serde::Serialize;

use super::measure::Seen;
use crate::output::{digits, rate, render, table};

/// One measurement. Names and meanings of the fields are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    mode: &'static str,
    threads: u16,
    ids: u64,
    seconds: f64,
    ids_per_second: f64,
    /// The time of all threads, over the ids.
    pub(super) ns_per_id: f64,
    /// `ns_per_id` over that of the bare instruction.
    ratio_to_bare: f64,
    /// Of a draw, which for `take` is a call.
    draw_ns: Percentiles,
    /// What follows is `null` for the bare instruction.
    reserves: Option<u64>,
    waits: Option<u64>,
    gaps: Option<u64>,
    left: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct Percentiles {
    p50: u64,
    p90: u64,
    p99: u64,
    p99_9: u64,
    p99_99: u64,
    max: u64,
}

impl Row {
    pub(super) fn new(mode: &'static str, threads: u16, seen: &Seen, snapshot: Option<&Snapshot>) -> Self {
        let seconds = seen.elapsed.as_secs_f64();
        let at = |quantile| seen.draws.value_at_quantile(quantile);
        Self {
            mode,
            threads,
            ids: seen.ids,
            seconds,
            ids_per_second: seen.ids as f64 / seconds,
            ns_per_id: seconds * 1e9 * f64::from(threads) / seen.ids as f64,
            ratio_to_bare: 1.0,
            draw_ns: Percentiles {
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p99_9: at(0.999),
                p99_99: at(0.9999),
                max: seen.draws.max(),
            },
            reserves: snapshot.map(|seen| seen.reserves),
            waits: snapshot.map(|seen| seen.waits),
            gaps: snapshot.map(|seen| seen.gaps.total()),
            left: snapshot.map(|seen| seen.remaining),
        }
    }

    /// Sets it beside the bare instruction.
    pub(super) fn beside(self, bare_ns_per_id: f64) -> Self {
        Self { ratio_to_bare: self.ns_per_id / bare_ns_per_id, ..self }
    }
}

/// The whole of a bench. Names and meanings of the fields are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// The URL of the store measured in.
    pub(super) store: String,
    pub(super) runs: Vec<Row>,
}

pub(super) fn human(rows: &[Row]) -> String {
    let headings = ["MODE", "THREADS", "IDS/S", "NS/ID", "X BARE", "RESERVES", "WAITED", "GAPS", "LEFT"];
    let mut speeds = table(&headings, &[0]);
    let headings = ["MODE", "THREADS", "P50", "P90", "P99", "P99.9", "P99.99", "MAX"];
    let mut draws = table(&headings, &[0]);
    for row in rows {
        speeds.add_row(speed(row));
        draws.add_row(draw(row));
    }
    format!("{}\nTime of one draw:\n{}", render(&speeds), render(&draws))
}

fn speed(row: &Row) -> Vec<String> {
    let count = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    vec![
        row.mode.to_owned(),
        row.threads.to_string(),
        rate(row.ids_per_second),
        digits(row.ns_per_id),
        digits(row.ratio_to_bare),
        count(row.reserves),
        count(row.waits),
        count(row.gaps),
        count(row.left),
    ]
}

fn draw(row: &Row) -> Vec<String> {
    let times = &row.draw_ns;
    let mut cells = vec![row.mode.to_owned(), row.threads.to_string()];
    cells.extend([times.p50, times.p90, times.p99, times.p99_9, times.p99_99, times.max].map(time));
    cells
}

fn time(nanos: u64) -> String {
    match nanos {
        ..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} us", digits(nanos as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(nanos as f64 / 1e6)),
        _ => format!("{} s", digits(nanos as f64 / 1e9)),
    }
}
