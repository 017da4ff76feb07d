//! Times of single draws, and their format.

use std::time::Duration;

use hdrhistogram::Histogram;
use idmill_bench::TIMEOUT;

/// Covers a nanosecond up to the timeout of a caller, to three digits. Never resized during a measurement.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, nanos(TIMEOUT), 3).expect("the bounds are in order")
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn pretty(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}
