//! Counters and gauges through the [`metrics`] facade, by the feature `metrics`; labelled with the sequence's name.
//!
//! Recorded by the actor at every event of a refill, and for all sequences by
//! [`Sequences::record_metrics`](crate::Sequences::record_metrics); never by a draw.
//!
//! | name | kind | what |
//! |---|---|---|
//! | `idmill_draws_total` | counter | ids handed out |
//! | `idmill_granted_total` | counter | ids that the store granted |
//! | `idmill_reserves_total` | counter | reserves sent to the store |
//! | `idmill_reserve_failures_total` | counter | those that failed or whose outcome is unknown |
//! | `idmill_waits_total` | counter | calls that found nothing in memory |
//! | `idmill_dry_milliseconds_total` | counter | time during which at least one caller waited |
//! | `idmill_given_back_total` | counter | ids that the store took back at the end |
//! | `idmill_gaps_total` | counter | ids never to be handed out; label `reason`: `revoked`, `abandoned`, `dropped`, `unknown` |
//! | `idmill_remaining` | gauge | ids in memory |
//! | `idmill_rate` | gauge | ids drawn a second |
//! | `idmill_seconds_to_dry` | gauge | how long memory lasts without the store |
//! | `idmill_seconds_to_exhaustion` | gauge | how long the sequence lasts, if this were its only process |

use std::time::Duration;

use metrics::{counter, gauge};

use crate::core::Core;
use crate::snapshot::Snapshot;

pub(crate) fn record(core: &Core) {
    let name = || core.name.shared();
    let now = Snapshot::of(core);
    counter!("idmill_draws_total", "sequence" => name()).absolute(now.drawn);
    counter!("idmill_granted_total", "sequence" => name()).absolute(now.granted);
    counter!("idmill_reserves_total", "sequence" => name()).absolute(now.reserves);
    counter!("idmill_reserve_failures_total", "sequence" => name()).absolute(now.failures);
    counter!("idmill_waits_total", "sequence" => name()).absolute(now.waits);
    let dry = u64::try_from(now.dry_time.as_millis()).unwrap_or(u64::MAX);
    counter!("idmill_dry_milliseconds_total", "sequence" => name()).absolute(dry);
    counter!("idmill_given_back_total", "sequence" => name()).absolute(now.given_back);
    let gaps = now.gaps;
    for (reason, ids) in [
        ("revoked", gaps.revoked),
        ("abandoned", gaps.abandoned),
        ("dropped", gaps.dropped),
        ("unknown", gaps.unknown),
    ] {
        counter!("idmill_gaps_total", "sequence" => name(), "reason" => reason).absolute(ids);
    }
    gauge!("idmill_remaining", "sequence" => name()).set(now.remaining as f64);
    gauge!("idmill_rate", "sequence" => name()).set(now.rate);
    gauge!("idmill_seconds_to_dry", "sequence" => name()).set(seconds(now.time_to_dry));
    gauge!("idmill_seconds_to_exhaustion", "sequence" => name()).set(seconds(now.time_to_exhaustion));
}

/// For ever, where nothing is drawn.
fn seconds(duration: Option<Duration>) -> f64 {
    duration.map_or(f64::INFINITY, |duration| duration.as_secs_f64())
}
