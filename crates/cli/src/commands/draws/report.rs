//! The results as tables and as JSON.

use serde::Serialize;

use super::Totals;
use crate::measuring::{Counts, Percentiles, percentiles};
use crate::output::{Sheet, digits, rate};

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("p99_99", 0.9999), ("max", 1.0)];

/// One measurement. Names and meanings of the fields are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    mode: String,
    threads: u16,
    ids: u64,
    seconds: f64,
    ids_per_second: f64,
    /// The time of all threads, divided by the number of ids.
    pub(super) ns_per_id: f64,
    /// `ns_per_id`, relative to the bare instruction.
    ratio_to_bare: f64,
    /// Latencies of draws; a call of `take` counts as one.
    draw_ns: Percentiles<u64>,
    /// `null` for the bare instruction.
    #[serde(flatten)]
    counts: Counts,
}

impl Row {
    pub(super) fn new(mode: String, threads: u16, seen: &Totals, counts: Counts) -> Self {
        let seconds = seen.elapsed.as_secs_f64();
        Self {
            mode,
            threads,
            ids: seen.ids,
            seconds,
            ids_per_second: seen.ids as f64 / seconds,
            ns_per_id: seconds * 1e9 * f64::from(threads) / seen.ids as f64,
            ratio_to_bare: 1.0,
            draw_ns: percentiles(&seen.draws, &QUANTILES, |nanos| nanos),
            counts,
        }
    }

    /// Sets the ratio to the bare instruction.
    pub(super) fn beside(self, bare_ns_per_id: f64) -> Self {
        Self { ratio_to_bare: self.ns_per_id / bare_ns_per_id, ..self }
    }

    fn speed(&self) -> Vec<String> {
        let mut cells = vec![self.mode.clone(), self.threads.to_string(), rate(self.ids_per_second)];
        cells.extend([self.ns_per_id, self.ratio_to_bare].map(digits));
        cells.extend(self.counts.cells());
        cells
    }

    fn draw(&self) -> Vec<String> {
        let mut cells = vec![self.mode.clone(), self.threads.to_string()];
        cells.extend(QUANTILES.iter().map(|(name, _)| time(self.draw_ns[name])));
        cells
    }
}

pub(super) fn human(rows: &[Row]) -> String {
    let speeds = ["MODE", "THREADS", "IDS/S", "NS/ID", "X BARE", "RESERVES", "WAITED", "GAPS", "LEFT"];
    let draws = ["MODE", "THREADS", "P50", "P90", "P99", "P99.9", "P99.99", "MAX"];
    let speeds = Sheet::of(&speeds, rows.iter().map(Row::speed)).text();
    let draws = Sheet::of(&draws, rows.iter().map(Row::draw)).text();
    format!("{speeds}\nTime of one draw:\n{draws}")
}

fn time(nanos: u64) -> String {
    match nanos {
        ..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} us", digits(nanos as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(nanos as f64 / 1e6)),
        _ => format!("{} s", digits(nanos as f64 / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn time_has_the_unit_of_its_size() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (12_340, "12.3 us"),
            (1_000_000, "1.00 ms"),
            (250_000_000, "250 ms"),
            (1_000_000_000, "1.00 s"),
        ] {
            assert_eq!(time(nanos), text);
        }
    }
}
