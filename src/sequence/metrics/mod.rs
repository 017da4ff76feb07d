//! Counters, gauges and a histogram through the [`metrics`] facade, with the feature `metrics`; labelled with
//! the sequence's name. `docs/guide/metrics.md` lists them.
//!
//! The actor records them at every event of a refill, and
//! [`Sequences::record_metrics`](crate::Sequences::record_metrics) does so for all sequences. Draws never do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::error::{Result, Status};
use crate::sequence::parts::Core;
use crate::sequence::snapshot::{Gaps, Health, Snapshot};
use crate::store::Grant;
use crate::sync::{Arc, Counter, Ordering};

const COUNTERS: [(&str, Unit, &str); 10] = [
    ("idmill_draws_total", Unit::Count, "Ids handed out, including ids of cancelled callers"),
    ("idmill_granted_total", Unit::Count, "Ids that the store granted"),
    ("idmill_reserves_total", Unit::Count, "Reserves sent to the store"),
    (FAILURES, Unit::Count, "Reserves that failed or whose outcome is unknown"),
    ("idmill_waits_total", Unit::Count, "Calls that waited for ids"),
    (EMPTY, Unit::Milliseconds, "Time during which at least one caller waited, including the current wait"),
    ("idmill_given_back_total", Unit::Count, "Ids that the store took back"),
    ("idmill_gaps_total", Unit::Count, "Ids that will never be handed out, by reason"),
    ("idmill_healed_total", Unit::Count, "Number of times a guarded store went back in time"),
    (
        "idmill_history_changes_total", // counted by idmill-kit
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
         sequence ended",
    ),
];
const FAILURES: &str = "idmill_reserve_failures_total";
const EMPTY: &str = "idmill_empty_milliseconds_total";
const EXHAUSTION: &str = "idmill_seconds_to_exhaustion";
const LAST_GRANT: &str = "idmill_last_grant_timestamp_seconds";
const HEALTH: &str = "idmill_health";
const LATENCY: &str = "idmill_reserve_seconds";

/// Registers the descriptions of all metrics. A recorder that is installed later gets them at the next call.
pub(crate) fn describe() {
    for (name, unit, what) in COUNTERS {
        describe_counter!(name, unit, what);
    }
    for (name, unit, what) in GAUGES {
        describe_gauge!(name, unit, what);
    }
    describe_histogram!(LATENCY, Unit::Seconds, "Latency of reserves, including timeouts, by outcome");
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
    histogram!(LATENCY, "sequence" => shared(core), "outcome" => outcome).record(latency.as_secs_f64());
}

/// Calls the recorder. If it panics, this record is lost, and callers are not affected.
pub(crate) fn harmless(core: &Core, tell: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(tell)).is_err() {
        tracing::warn!(sequence = %core.name, "the metrics recorder panicked");
    }
}

/// Records all metrics of a sequence, as of `now` by the actor's clock.
pub(crate) fn record(core: &Core, now: Duration) {
    let (name, reported) = (|| shared(core), &core.reported);
    // Read the draws before the granted ids, which they must not exceed. Ids drawn and then dropped count as
    // drawn and as dropped.
    let draws = core.left();
    let now = Snapshot::of(core, now);
    tell(&counter!("idmill_draws_total", "sequence" => name()), &reported.draws, draws);
    tell(&counter!("idmill_granted_total", "sequence" => name()), &reported.granted, now.granted);
    tell(&counter!("idmill_reserves_total", "sequence" => name()), &reported.reserves, now.reserves);
    tell(&counter!(FAILURES, "sequence" => name()), &reported.failures, now.failures);
    tell(&counter!("idmill_waits_total", "sequence" => name()), &reported.waits, now.waits);
    let empty = u64::try_from(now.empty_time.as_millis()).unwrap_or(u64::MAX);
    tell(&counter!(EMPTY, "sequence" => name()), &reported.empty, empty);
    tell(&counter!("idmill_given_back_total", "sequence" => name()), &reported.given_back, now.given_back);
    let Gaps { revoked, abandoned, dropped, unknown } = now.gaps;
    let gaps = [("revoked", revoked), ("abandoned", abandoned), ("dropped", dropped), ("unknown", unknown)];
    for ((reason, ids), reported) in gaps.into_iter().zip(&reported.gaps) {
        tell(&counter!("idmill_gaps_total", "sequence" => name(), "reason" => reason), reported, ids);
    }
    gauge!("idmill_remaining", "sequence" => name()).set(now.remaining as f64);
    gauge!("idmill_rate", "sequence" => name()).set(now.rate);
    gauge!("idmill_seconds_to_empty", "sequence" => name()).set(seconds(now.time_to_empty));
    gauge!(EXHAUSTION, "sequence" => name()).set(seconds(now.time_to_exhaustion));
    record_health(core, &now);
}

/// Increments the counter by the increase since the last report. Several threads may call it concurrently.
fn tell(counter: &metrics::Counter, reported: &Counter, now: u64) {
    // Relaxed: each of two concurrent reports adds only its part.
    counter.increment(now.saturating_sub(reported.fetch_max(now, Ordering::Relaxed)));
}

fn record_health(core: &Core, now: &Snapshot) {
    let name = || shared(core);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if let Some(ago) = now.since_grant {
        gauge!(LAST_GRANT, "sequence" => name()).set(since_1970.saturating_sub(ago).as_secs_f64());
    }
    gauge!("idmill_failures_in_a_row", "sequence" => name()).set(now.failures_in_a_row as f64);
    gauge!(HEALTH, "sequence" => name()).set(match now.health() {
        Health::Ended | Health::Empty => 0.0,
        Health::Failing => 1.0,
        Health::Serving => 2.0,
    });
}

fn shared(core: &Core) -> Arc<str> {
    core.name.clone().into()
}

/// Infinite if nothing is drawn or granted.
fn seconds(duration: Option<Duration>) -> f64 {
    duration.map_or(f64::INFINITY, |duration| duration.as_secs_f64())
}
