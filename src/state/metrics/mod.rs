//! Counters, gauges and a histogram through the [`metrics`] facade, with the feature `metrics`; labelled with
//! the sequence's name. `docs/guide/metrics.md` lists them.
//!
//! The actor records them at every event of a refill, and
//! [`Sequences::record_metrics`](crate::Sequences::record_metrics) does so for all sequences. Draws never do.
//!
//! A recorder keeps each series, so the number of sequences with series of their own is [bounded](share).
//! Each increase of a count is reported to the series that the sequence has at that time. So no counter
//! decreases when a sequence gets or loses its own series.

mod share;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::error::{ErrorKind, Result, Status};
use crate::state::core::Core;
use crate::state::snapshot::{Health, Snapshot};
use crate::state::stats::COUNTS;
use crate::store::Grant;
use crate::sync::{Counter, Ordering, unless_it_panics};
pub(crate) use share::{opening, record_all};

const COUNTERS: [(&str, Unit, &str); 10] = [
    ("idmill_draws_total", Unit::Count, "Ids handed out, including ids of cancelled callers"),
    ("idmill_granted_total", Unit::Count, "Ids that the store granted"),
    ("idmill_reserves_total", Unit::Count, "Reserves sent to the store"),
    (FAILURES, Unit::Count, "Reserves that failed or whose outcome is unknown"),
    ("idmill_waits_total", Unit::Count, "Calls that waited for ids"),
    (EMPTY, Unit::Milliseconds, "Time during which at least one caller waited, including the current wait"),
    ("idmill_given_back_total", Unit::Count, "Ids that the store took back"),
    (GAPS, Unit::Count, "Ids that will never be handed out, by reason"),
    (HEALED, Unit::Count, "Number of times a guarded store went back in time"),
    (
        HISTORY_CHANGES,
        Unit::Count,
        "Reserves of sequences last written before a failover or restore, by decision",
    ),
];
const GAUGES: [(&str, Unit, &str); 7] = [
    ("idmill_remaining", Unit::Count, "Ids in memory"),
    ("idmill_rate", Unit::CountPerSecond, "Ids drawn a second"),
    ("idmill_seconds_to_empty", Unit::Seconds, "Time until memory is empty if the store is unreachable"),
    (EXHAUSTION, Unit::Seconds, "Time until the sequence is exhausted, if this is its only process"),
    (LAST_GRANT, Unit::Seconds, "Time of the store's last grant, in seconds since 1970"),
    ("idmill_failures_in_a_row", Unit::Count, "Reserves that failed since the last grant"),
    (
        HEALTH,
        Unit::Count,
        "2: the store answers; 1: it fails, but ids are in memory; 0: it fails and memory is empty, or the \
         sequence is exhausted",
    ),
];
const GAPS: &str = "idmill_gaps_total";
const FAILURES: &str = "idmill_reserve_failures_total";
const EMPTY: &str = "idmill_empty_milliseconds_total";
const EXHAUSTION: &str = "idmill_seconds_to_exhaustion";
const LAST_GRANT: &str = "idmill_last_grant_timestamp_seconds";
const HEALTH: &str = "idmill_health";
const LATENCY: &str = "idmill_reserve_seconds";
/// Counted by idmill-guard.
const HEALED: &str = "idmill_healed_total";
/// Counted by idmill-kit, with one of these decisions.
const HISTORY_CHANGES: &str = "idmill_history_changes_total";
const DECISIONS: [&str; 3] = ["refused", "allowed", "skipped"];

/// Registers the descriptions of all metrics, and the counters of the store at 0. A recorder that is
/// installed later gets them at the next call.
///
/// A query for the increase of a counter misses the event with which the counter begins.
pub(crate) fn describe() {
    for (name, unit, what) in COUNTERS {
        describe_counter!(name, unit, what);
    }
    for (name, unit, what) in GAUGES {
        describe_gauge!(name, unit, what);
    }
    describe_histogram!(LATENCY, Unit::Seconds, "Latency of reserves, including timeouts, by outcome");
    // A recorder that panics affects no caller.
    let _ = unless_it_panics(|| {
        counter!(HEALED).increment(0);
        for decision in DECISIONS {
            counter!(HISTORY_CHANGES, "decision" => decision).increment(0);
        }
    });
}

/// Increments a counter of another crate, such as the guard, so that this crate needs no feature `metrics`.
pub fn count(counter: &'static str, labels: &[(&'static str, &str)]) {
    let labels: Vec<_> = labels.iter().map(|&(label, value)| Label::new(label, value.to_owned())).collect();
    counter!(counter, labels).increment(1);
}

/// Records the latency of a reserve that was answered or timed out.
pub(crate) fn answered(core: &Core, latency: Duration, outcome: &Result<Grant>) {
    let outcome = match outcome {
        Ok(_) => "granted",
        Err(error) if error.status() == Status::Unknown => "unknown",
        Err(_) => "failed",
    };
    harmless(core, || {
        histogram!(LATENCY, "sequence" => share::label(core), "outcome" => outcome)
            .record(latency.as_secs_f64());
    });
}

/// Calls the recorder. If it panics, this record is lost, and callers are not affected.
fn harmless(core: &Core, tell: impl FnOnce()) {
    if unless_it_panics(tell).is_none() {
        tracing::warn!(sequence = %core.name, "the metrics recorder panicked");
    }
}

/// Records all metrics of a sequence for the actor, as of `now` by its clock.
pub(crate) fn record(core: &Core, now: Duration) {
    harmless(core, || report(core, now));
}

/// Records all metrics of a sequence. For a sequence without series of its own, records only the increase of
/// the counts, and not the levels, which are sums over many sequences.
fn report(core: &Core, now: Duration) {
    let (counts, now) = read(core, now);
    let label = share::label(core);
    for (at, (counter, count)) in counts.into_iter().enumerate() {
        counter.increment(&label, unreported(core, at, count));
    }
    if share::has_own(core) {
        Levels::of(&now).set(&label);
    }
}

/// Returns the counts and the snapshot of a sequence.
fn read(core: &Core, now: Duration) -> ([(Count, u64); COUNTS], Snapshot) {
    // Read the draws before the granted ids, which they must not exceed. Ids drawn and then dropped count as
    // drawn and as dropped.
    let draws = core.left();
    let now = Snapshot::of(core, now);
    let empty = u64::try_from(now.empty_time.as_millis()).unwrap_or(u64::MAX);
    let gap = |reason, ids| (Count(GAPS, Some(reason)), ids);
    let counts = [
        (Count("idmill_draws_total", None), draws),
        (Count("idmill_granted_total", None), now.granted),
        (Count("idmill_reserves_total", None), now.reserves),
        (Count(FAILURES, None), now.failures),
        (Count("idmill_waits_total", None), now.waits),
        (Count(EMPTY, None), empty),
        (Count("idmill_given_back_total", None), now.given_back),
        gap("revoked", now.gaps.revoked),
        gap("abandoned", now.gaps.abandoned),
        gap("dropped", now.gaps.dropped),
        gap("unknown", now.gaps.unknown),
    ];
    (counts, now)
}

/// Returns the increase since the last report. Several threads may call it concurrently.
fn unreported(core: &Core, at: usize, count: u64) -> u64 {
    // Relaxed: each of two concurrent reports gets only its part.
    let more = count.saturating_sub(core.reported.counts[at].fetch_max(count, Ordering::Relaxed));
    TOTALS[at].fetch_add(more, Ordering::Relaxed);
    more
}

/// The sums over all sequences of this process, which outlast the series of the sequences.
static TOTALS: [Counter; COUNTS] = [const { Counter::new(0) }; COUNTS];

/// Returns a count over all sequences since the start of this process, in the order of `read`: draws,
/// granted, reserves, failures, waits, empty milliseconds, given back; and the gaps: revoked, abandoned,
/// dropped, unknown.
pub fn totals() -> [u64; COUNTS] {
    std::array::from_fn(|at| TOTALS[at].load(Ordering::Relaxed))
}

/// A counter of a sequence, and the reason if it counts gaps.
#[derive(Clone, Copy)]
struct Count(&'static str, Option<&'static str>);

impl Count {
    fn increment(self, sequence: &SharedString, by: u64) {
        let Self(name, reason) = self;
        match reason {
            None => counter!(name, "sequence" => sequence.clone()),
            Some(reason) => counter!(name, "sequence" => sequence.clone(), "reason" => reason),
        }
        .increment(by);
    }
}

/// The gauges of one sequence, or of several.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Levels {
    remaining: f64,
    rate: f64,
    to_empty: f64,
    to_exhaustion: f64,
    /// In seconds since 1970.
    last_grant: Option<f64>,
    failures: f64,
    health: f64,
}

impl Levels {
    /// The levels of no sequence. An evicted or closed sequence has them, so that no alert fires for it.
    const NOTHING: Self = Self {
        remaining: 0.0,
        rate: 0.0,
        to_empty: f64::INFINITY,
        to_exhaustion: f64::INFINITY,
        last_grant: None,
        failures: 0.0,
        health: 2.0,
    };

    fn of(now: &Snapshot) -> Self {
        if now.ended == Some(ErrorKind::Closed) {
            return Self::NOTHING;
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            remaining: now.remaining as f64,
            rate: now.rate,
            to_empty: seconds(now.time_to_empty),
            to_exhaustion: seconds(now.time_to_exhaustion),
            last_grant: now.since_grant.map(|ago| since_1970.saturating_sub(ago).as_secs_f64()),
            failures: now.failures_in_a_row as f64,
            health: match now.health() {
                Health::Ended | Health::Empty => 0.0,
                Health::Failing => 1.0,
                Health::Serving => 2.0,
            },
        }
    }

    /// Returns the sum of ids and rates, and the worst of the other levels.
    fn and(self, other: Self) -> Self {
        Self {
            remaining: self.remaining + other.remaining,
            rate: self.rate + other.rate,
            to_empty: self.to_empty.min(other.to_empty),
            to_exhaustion: self.to_exhaustion.min(other.to_exhaustion),
            last_grant: self.last_grant.into_iter().chain(other.last_grant).reduce(f64::max),
            failures: self.failures.max(other.failures),
            health: self.health.min(other.health),
        }
    }

    fn set(self, sequence: &SharedString) {
        let level = |name: &'static str, value| gauge!(name, "sequence" => sequence.clone()).set(value);
        level("idmill_remaining", self.remaining);
        level("idmill_rate", self.rate);
        level("idmill_seconds_to_empty", self.to_empty);
        level(EXHAUSTION, self.to_exhaustion);
        level("idmill_failures_in_a_row", self.failures);
        level(HEALTH, self.health);
        if let Some(time) = self.last_grant {
            level(LAST_GRANT, time);
        }
    }
}

/// Infinite if nothing is drawn or granted.
fn seconds(duration: Option<Duration>) -> f64 {
    duration.map_or(f64::INFINITY, |duration| duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_the_sums_and_the_worst_levels() {
        let one = Levels {
            remaining: 10.0,
            rate: 2.0,
            to_empty: 5.0,
            to_exhaustion: 700.0,
            last_grant: Some(100.0),
            failures: 0.0,
            health: 2.0,
        };
        let other = Levels {
            remaining: 1.0,
            rate: 0.5,
            to_empty: 2.0,
            to_exhaustion: 900.0,
            last_grant: Some(50.0),
            failures: 3.0,
            health: 1.0,
        };
        let both = Levels {
            remaining: 11.0,
            rate: 2.5,
            to_empty: 2.0,
            to_exhaustion: 700.0,
            last_grant: Some(100.0),
            failures: 3.0,
            health: 1.0,
        };
        assert_eq!((one.and(other), other.and(one), Levels::NOTHING.and(one)), (both, both, one));
    }
}
