//! The observable state of a running sequence.

use std::time::Duration;

use crate::error::{ErrorKind, string_enum};
use crate::state::core::Core;
use crate::state::settings::Order;
use crate::store::{Bounds, Identity};

/// Counters since the sequence was opened in this process, current levels, and estimates. Returned by
/// [`Allocator::snapshot`](crate::Allocator::snapshot).
///
/// Each field is correct on its own, but they are not read at one instant.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// Ids handed out, including ids held by blocks.
    pub drawn: u64,
    /// Ids in memory, not drawn yet: a crash would waste these, in addition to the ids in blocks.
    pub remaining: u64,
    /// Ids that the store granted.
    pub granted: u64,
    /// Reserves sent to the store.
    pub reserves: u64,
    /// Reserves that failed or whose outcome is unknown.
    pub failures: u64,
    /// Calls that found too few ids in memory and had to wait.
    pub waits: u64,
    /// Total time during which at least one caller waited, up to now.
    pub empty_time: Duration,
    /// How long ago the store last granted ids; `None` before the first grant.
    pub since_grant: Option<Duration>,
    /// Reserves that failed since the last grant; the end of a sequence is not a failure. A reserve in flight
    /// counts once it has taken over a second and over four times the [`latency`](Self::latency): it is sent
    /// only if memory is low or a caller waits.
    pub failures_in_a_row: u64,
    /// How long the reserve in flight has taken so far; `None` if there is none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub in_flight: Option<Duration>,
    /// Whether callers wait now.
    pub is_empty: bool,
    /// Ids that the store took back, at the [close](crate::Sequences::close) or as excess: the next reserve
    /// gets them.
    pub given_back: u64,
    /// Ids that were reserved and will never be handed out.
    pub gaps: Gaps,
    /// Ids drawn per second, as estimated at the last refill.
    pub rate: f64,
    /// How long ids in memory last at that rate without the store; `None` while the rate is 0.
    pub time_to_empty: Option<Duration>,
    /// How long the whole sequence lasts at that rate, if this is its only process; `None` before the first
    /// grant or while the rate is 0.
    pub time_to_exhaustion: Option<Duration>,
    /// The store's latency at the last grant, to 1 %; `None` before the first grant.
    #[cfg_attr(feature = "serde", serde(default))]
    pub latency: Option<Duration>,
    /// The last id that the store granted; `None` before the first grant.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reached: Option<u64>,
    /// The bounds of the sequence; `None` before the first grant.
    #[cfg_attr(feature = "serde", serde(default))]
    pub bounds: Option<Bounds>,
    /// The identity of the sequence; `None` before the first grant.
    pub identity: Option<Identity>,
    /// The ordering guarantee.
    pub order: Order,
    /// Why no more ids follow, while memory is empty: [`Exhausted`](ErrorKind::Exhausted) or
    /// [`Closed`](ErrorKind::Closed).
    pub ended: Option<ErrorKind>,
}

/// Ids that were reserved and will never be handed out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Gaps {
    /// In memory when the sequence was revoked, closed or evicted, or above `max_buffered`, and not given
    /// back to the store. Ids that are being given back are counted only after it is known that the store did
    /// not take them.
    pub revoked: u64,
    /// Granted after their callers had given up, or after the sequence was revoked or reset; or rejected by a
    /// guard.
    pub abandoned: u64,
    /// Had left memory when a caller was cancelled, a `take` failed or a block ended.
    pub dropped: u64,
    /// Possibly reserved by requests whose outcome is unknown: an upper bound.
    pub unknown: u64,
}

impl Gaps {
    /// Returns the sum of all reasons: an upper bound, because of `unknown`.
    pub fn total(&self) -> u64 {
        self.revoked + self.abandoned + self.dropped + self.unknown
    }
}

string_enum! {
    /// The state of a sequence's supply: see [`Snapshot::health`].
    #[derive(PartialOrd, Ord)]
    pub enum Health, "health" {
        /// No more ids follow: the sequence is exhausted or closed.
        Ended = "ended",
        /// The store fails, and callers find no ids in memory.
        Empty = "empty",
        /// The store fails, and ids are still in memory: [`Snapshot::time_to_empty`] estimates for how long.
        /// Under [`Order::Global`], whose memory is always empty: the last reserve failed, and no caller
        /// waits.
        Failing = "failing",
        /// No reserve has failed since the last grant, and none is
        /// [overdue](Snapshot::failures_in_a_row).
        Serving = "serving",
    }
}

impl Snapshot {
    /// Returns the state of the supply. Alert at [`Health::Failing`]: callers still get ids.
    pub fn health(&self) -> Health {
        match self {
            Self { ended: Some(_), .. } => Health::Ended,
            Self { failures_in_a_row: 0, .. } => Health::Serving,
            // `Global` keeps no ids in memory. While no caller is waiting, report `Failing`: the next caller
            // starts another reserve.
            Self { is_empty: false, remaining: 1.., .. }
            | Self { is_empty: false, order: Order::Global, .. } => Health::Failing,
            _ => Health::Empty,
        }
    }

    /// Creates a snapshot as of `now`, by the clock of the core's actor.
    pub(crate) fn of(core: &Core, now: Duration) -> Self {
        let stats = &core.stats;
        let (remaining, rate) = (core.stock.remaining(), stats.rate());
        let unreserved = stats.unreserved(core.settings.ceiling);
        let in_flight = stats.asked_at().map(|at| now.saturating_sub(at));
        let overdue = in_flight.is_some_and(|out| is_overdue(out, stats.latency()));
        Self {
            drawn: core.drawn(),
            remaining,
            granted: stats.granted(),
            reserves: stats.reserves(),
            failures: stats.failures(),
            waits: stats.waits(),
            empty_time: stats.empty(now),
            since_grant: stats.granted_at().map(|at| now.saturating_sub(at)),
            failures_in_a_row: stats.failing() + u64::from(overdue),
            in_flight,
            is_empty: stats.is_empty(),
            given_back: stats.given_back(),
            gaps: Gaps {
                revoked: stats.revoked(),
                abandoned: stats.abandoned(),
                dropped: stats.dropped(),
                unknown: stats.unknown(),
            },
            rate,
            time_to_empty: lasts(remaining, rate),
            time_to_exhaustion: unreserved.and_then(|left| lasts(left.saturating_add(remaining), rate)),
            latency: stats.latency(),
            reached: stats.reached(),
            bounds: stats.bounds(),
            identity: stats.identity(),
            order: core.settings.order,
            ended: core.stock.ended().or_else(|| core.is_exhausted().then_some(ErrorKind::Exhausted)),
        }
    }
}

/// Returns whether a store that usually answers within `usual` has probably failed after this time.
fn is_overdue(out: Duration, usual: Option<Duration>) -> bool {
    out > usual.unwrap_or_default().saturating_mul(4).max(SHORTEST_OVERDUE)
}

/// Shorter delays are frequent, and ids in memory cover them.
const SHORTEST_OVERDUE: Duration = Duration::from_secs(1);

fn lasts(ids: u64, rate: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ids as f64 / rate).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_overdue_after_four_latencies() {
        let millis = Duration::from_millis;
        for (usual, out, overdue) in [
            (None, 1000, false),
            (None, 1001, true),
            (Some(2), 999, false),
            (Some(2), 1001, true),
            (Some(3000), 12_000, false),
            (Some(3000), 12_001, true),
        ] {
            assert_eq!(is_overdue(millis(out), usual.map(millis)), overdue, "{out} of {usual:?}");
        }
        assert!(!is_overdue(Duration::MAX, Some(Duration::MAX)));
    }
}
