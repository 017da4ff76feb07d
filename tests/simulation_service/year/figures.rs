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
const FIRST: usize = 7;
/// How much memory may grow: the maps' capacity for names is not constant.
const SLACK: i64 = 16 << 10;

/// # Panics
/// If a day after the first ones costs more than the first ones.
pub(super) fn hold(days: &[Figures]) {
    assert!(days.len() > 2 * FIRST, "too few days: {}", days.len());
    let (first, rest) = days.split_at(FIRST);
    let most = |what: fn(&Figures) -> u64| first.iter().map(what).max().unwrap_or_default();
    let live = first.iter().map(|day| day.live).max().unwrap_or_default();
    for (n, day) in rest.iter().enumerate() {
        let day_is = format!("day {}: {day:?}, first days: {first:?}", FIRST + n);
        assert!(day.live <= live + SLACK, "memory grows; {day_is}");
        assert!(day.calls <= most(|day| day.calls) * 11 / 10, "more calls to the store; {day_is}");
        assert!(day.lines <= most(|day| day.lines) + 2, "more lines in the log; {day_is}");
        assert_eq!(day.series, first[FIRST - 1].series, "more metric series; {day_is}");
    }
    let unready: u64 = days.iter().map(|day| day.unready).sum();
    assert_eq!(unready, 0, "probes were not ready while the store answered: {days:?}");
}
