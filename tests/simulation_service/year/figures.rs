//! The costs of each day, which must stay the same.

/// One day.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Bytes allocated since the first day began, and not freed by the end of the day.
    pub(super) live: i64,
    /// Calls to the store.
    pub(super) calls: u64,
    /// Metric series since the first day began.
    pub(super) series: usize,
    /// Lines in the log, at INFO and above.
    pub(super) lines: u64,
    /// Probes that were not ready, although the store answered.
    pub(super) unready: u64,
}

/// The first days, in which caches fill.
pub(super) const FIRST: usize = 5;
/// How much memory may grow: the maps' capacity for names is not constant.
const SLACK: i64 = 16 << 10;
/// The most calls and lines of a day: a draw a minute from each busy sequence, the checks of `max_age`, an
/// attempt each half a minute for the exhausted sequence, and a few lines about the outage. Probes make no
/// other attempts for sequences that fail permanently.
const MOST_CALLS: u64 = 6_000;
const MOST_LINES: u64 = 100;

/// Fails if a day after the first ones costs more than the first ones.
pub(super) fn hold(days: &[Figures]) -> Result<(), String> {
    let (first, rest) = days.split_at(FIRST);
    let most = |what: fn(&Figures) -> u64| first.iter().map(what).max().unwrap_or_default();
    let live = first.iter().map(|day| day.live).max().unwrap_or_default();
    for (n, day) in rest.iter().enumerate() {
        let fault = if day.live > live + SLACK {
            "memory grows"
        } else if day.calls > MOST_CALLS {
            "the store is called without callers"
        } else if day.lines > MOST_LINES {
            "lines are logged without callers"
        } else if day.calls > most(|day| day.calls) * 11 / 10 {
            "the store is called more often"
        } else if day.lines > most(|day| day.lines) + 2 {
            "more lines are logged"
        } else if day.series > first[FIRST - 1].series {
            "metric series grow"
        } else {
            continue;
        };
        return Err(format!("{fault}: day {} is {day:?}, the first ones {first:?}", FIRST + n));
    }
    let unready: u64 = days.iter().map(|day| day.unready).sum();
    if unready > 0 {
        return Err(format!("{unready} probes were not ready while the store answered"));
    }
    Ok(())
}
