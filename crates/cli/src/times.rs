//! How measured times are kept: whole microseconds or nanoseconds up to an hour, to three digits.

use std::time::Duration;

use hdrhistogram::Histogram;

/// What takes longer is counted as an hour.
const LONGEST: Duration = Duration::from_secs(3600);

/// For what takes a round trip to a store.
pub(crate) fn in_micros() -> Histogram<u64> {
    up_to(micros(LONGEST))
}

/// For what takes place in memory.
pub(crate) fn in_nanos() -> Histogram<u64> {
    up_to(nanos(LONGEST))
}

fn up_to(longest: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, longest, 3).expect("fixed bounds")
}

/// As a histogram of microseconds takes it without complaint: from one to the longest there is.
pub(crate) fn countable_micros(duration: Duration) -> u64 {
    micros(duration).clamp(1, micros(LONGEST))
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A quantile of microseconds, in milliseconds.
pub(crate) fn millis_at(micros: &Histogram<u64>, quantile: f64) -> f64 {
    micros.value_at_quantile(quantile) as f64 / 1e3
}
