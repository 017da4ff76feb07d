//! Counters of one sequence, cheap enough to be always on: the draws themselves update no counter.

use std::time::Duration;

use crate::store::{Bounds, Grant, Identity};
use crate::sync::{Counter, Ordering};

/// Stands for an unknown incarnation: valid ones have 63 bits.
const MET: u64 = u64::MAX;
/// Bit offset and mask of each value in `lately`.
const RATE: (u32, u64) = (32, u32::MAX as u64);
const LATENCY: (u32, u64) = (16, u16::MAX as u64);
const FAILING: (u32, u64) = (0, u16::MAX as u64);

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident / $add:ident),* $(,)?) => {
        /// Counters of one sequence. All accesses are `Relaxed`: nothing is inferred
        /// from one counter about another.
        #[derive(Debug, Default)]
        pub(crate) struct Stats {
            $($(#[$doc])* $name: Counter,)*
            /// 0 before the sequence was seen in the store, then [`MET`] until the first grant.
            incarnation: Counter,
            epoch: Counter,
            /// The first and the last id of the bounds, and the last id that was granted.
            first: Counter,
            last: Counter,
            reached: Counter,
            /// The most ids that a call that does not wait found missing since the last refill signal.
            wanted: Counter,
            /// When callers began to wait, and when the store last granted: nanoseconds of the actor's clock
            /// plus one; 0 for never.
            empty_since: Counter,
            granted_at: Counter,
            /// When the reserve in flight was sent, in the same form.
            asked_at: Counter,
            /// Three values in one word, since there may be a million idle sequences. The first is the number
            /// of ids drawn per second, as the bits of an `f32`. The second is the latency of the last grant
            /// in seconds, as the upper half of the bits of an `f32`, and 0 before the first grant. The third
            /// is the number of failed reserves since that grant.
            lately: Counter,
        }

        impl Stats {
            $($(#[$doc])*
            pub(crate) fn $name(&self) -> u64 {
                self.$name.load(Ordering::Relaxed)
            }

            pub(crate) fn $add(&self, n: u64) {
                if n > 0 {
                    self.$name.fetch_add(n, Ordering::Relaxed);
                }
            })*
        }
    };
}

counters! {
    /// Reserves sent to the store.
    reserves / add_reserves,
    /// Reserves that failed or whose outcome is unknown.
    failures / add_failures,
    /// Ids the store granted.
    granted / add_granted,
    /// Ids published to memory.
    published / add_published,
    /// Ids handed to waiting callers by the actor.
    replied / add_replied,
    /// Calls that found too few ids in memory and waited.
    waits / add_waits,
    /// Nanoseconds during which at least one caller waited.
    empty_nanos / add_empty_nanos,
    /// Ids lost in memory when the sequence was revoked, closed or evicted, or above the memory limit.
    revoked / gap_revoked,
    /// Ids that the store took back; they do not count as revoked.
    given_back / add_given_back,
    /// Ids lost because they were granted after their callers had given up, or after the sequence was revoked
    /// or reset, or were rejected by a guard.
    abandoned / gap_abandoned,
    /// Ids lost after they had left memory: by a cancelled caller, a failed `take`, an ended block.
    dropped / gap_dropped,
    /// Ids that may have been reserved by requests whose outcome is unknown: an upper bound.
    unknown / gap_unknown,
}

impl Stats {
    /// Subtracts ids that the actor takes out of memory, for a waiting caller or for the store. They are
    /// counted as replied, as given back or as a gap afterwards. Call it before the ids are taken: ids that
    /// are published but not in memory count as drawn.
    pub(crate) fn unpublish(&self, ids: u64) {
        self.published.fetch_sub(ids, Ordering::Relaxed);
    }

    /// Notes that a call that does not wait found fewer than `ids` ids in memory.
    pub(crate) fn note_wanted(&self, ids: u64) {
        self.wanted.fetch_max(ids, Ordering::Relaxed);
    }

    /// Returns the most ids noted since the last call.
    pub(crate) fn take_wanted(&self) -> u64 {
        self.wanted.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn note_rate(&self, rate: f64) {
        // Seven digits are precise enough for a rate.
        #[allow(clippy::cast_possible_truncation)]
        let rate = rate as f32;
        self.note(RATE, |_| rate.to_bits().into());
    }

    /// Returns the ids drawn per second, as estimated at the last refill.
    pub(crate) fn rate(&self) -> f64 {
        let bits = u32::try_from(self.noted(RATE)).expect("32 bits");
        f64::from(f32::from_bits(bits))
    }

    pub(crate) fn note_grant(&self, grant: &Grant) {
        self.incarnation.store(grant.identity.incarnation, Ordering::Relaxed);
        self.epoch.store(grant.identity.epoch, Ordering::Relaxed);
        self.note_bounds(grant.bounds);
        self.reached.store(grant.range.last().unwrap_or_default(), Ordering::Relaxed);
    }

    /// Notes that the sequence was seen in the store: this core never creates it again.
    pub(crate) fn meet(&self) {
        let _ = self.incarnation.compare_exchange(0, MET, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes that the sequence was seen in the store with these bounds.
    pub(crate) fn meet_with(&self, bounds: Bounds) {
        if self.identity().is_none() {
            self.note_bounds(bounds);
        }
        self.meet();
    }

    fn note_bounds(&self, bounds: Bounds) {
        self.first.store(bounds.start(), Ordering::Relaxed);
        self.last.store(bounds.max(), Ordering::Relaxed);
    }

    /// Returns the bounds in which the sequence was last seen in the store, if any.
    pub(crate) fn seen_bounds(&self) -> Option<Bounds> {
        let last = self.last.load(Ordering::Relaxed);
        // The two values are read separately, so they may come from different grants.
        if last > 0 { Bounds::new(self.first.load(Ordering::Relaxed), last).ok() } else { None }
    }

    /// Whether the sequence was seen in the store.
    pub(crate) fn is_met(&self) -> bool {
        self.incarnation.load(Ordering::Relaxed) != 0
    }

    /// Returns the last id that was granted; `None` before the first grant.
    pub(crate) fn reached(&self) -> Option<u64> {
        self.identity().map(|_| self.reached.load(Ordering::Relaxed))
    }

    /// Returns the bounds from the last grant; `None` before the first.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.identity().and(self.seen_bounds())
    }

    /// Notes the latency of a grant.
    pub(crate) fn note_latency(&self, latency: Duration) {
        // Rounded up, by less than 1 %.
        let upper = latency.as_secs_f32().to_bits().saturating_add(u16::MAX.into()) >> 16;
        self.note(LATENCY, |_| upper.max(1).into());
    }

    /// Returns the latency of the last grant, to 1 %.
    pub(crate) fn latency(&self) -> Option<Duration> {
        let upper = u32::try_from(self.noted(LATENCY)).expect("16 bits");
        let is_known = upper != 0;
        is_known.then(|| Duration::try_from_secs_f32(f32::from_bits(upper << 16)).ok())?
    }

    fn noted(&self, (from, bits): (u32, u64)) -> u64 {
        self.lately.load(Ordering::Relaxed) >> from & bits
    }

    /// Changes one of the three values in `lately`.
    fn note(&self, (from, bits): (u32, u64), change: impl Fn(u64) -> u64) {
        let changed = |lately: u64| Some(lately & !(bits << from) | change(lately >> from & bits) << from);
        let _ = self.lately.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    /// Notes when callers began to wait; `None` if none wait any more: then call `add_empty_nanos` next.
    pub(crate) fn note_empty(&self, since: Option<Duration>) {
        self.empty_since.store(since.map_or(0, mark), Ordering::Relaxed);
    }

    /// Returns how long at least one caller waited, up to now. A read while callers stop waiting may miss the
    /// last wait.
    pub(crate) fn empty(&self, now: Duration) -> Duration {
        let waiting = self.empty_since().map(|since| now.saturating_sub(since));
        Duration::from_nanos(self.empty_nanos()) + waiting.unwrap_or_default()
    }

    /// Returns when callers began to wait; `None` if none wait.
    pub(crate) fn empty_since(&self) -> Option<Duration> {
        unmark(self.empty_since.load(Ordering::Relaxed))
    }

    /// Notes when the reserve in flight was sent; `None` after its answer.
    pub(crate) fn note_asked(&self, at: Option<Duration>) {
        self.asked_at.store(at.map_or(0, mark), Ordering::Relaxed);
    }

    /// Returns when the reserve in flight was sent, by the actor's clock.
    pub(crate) fn asked_at(&self) -> Option<Duration> {
        unmark(self.asked_at.load(Ordering::Relaxed))
    }

    /// Notes a grant.
    pub(crate) fn note_success(&self, now: Duration) {
        self.granted_at.store(mark(now), Ordering::Relaxed);
        self.note(FAILING, |_| 0);
    }

    pub(crate) fn note_failing(&self) {
        self.note(FAILING, |failing| (failing + 1).min(FAILING.1));
    }

    /// Returns how many reserves failed since the last grant, up to 65,535.
    pub(crate) fn failing(&self) -> u64 {
        self.noted(FAILING)
    }

    /// Returns when the store last granted, by the actor's clock.
    pub(crate) fn granted_at(&self) -> Option<Duration> {
        unmark(self.granted_at.load(Ordering::Relaxed))
    }

    /// Grows with each reserve that is sent or answered, and with each range that is given back or lost on
    /// its way. Two equal reads prove that none of this happened in between.
    pub(crate) fn moves(&self) -> u64 {
        let moves = [self.reserves(), self.failures(), self.granted(), self.given_back(), self.revoked()];
        moves.into_iter().fold(0, u64::wrapping_add)
    }

    /// Whether callers wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty_since().is_some()
    }

    /// Returns the identity of the ids in memory; `None` before the first grant.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let incarnation = self.incarnation.load(Ordering::Relaxed);
        (incarnation != 0 && incarnation != MET)
            .then(|| Identity { incarnation, epoch: self.epoch.load(Ordering::Relaxed) })
    }

    /// Returns how many ids up to `ceiling` were left to reserve at the last grant; `None` before that.
    pub(crate) fn unreserved(&self, ceiling: u64) -> Option<u64> {
        self.identity()?;
        let last = self.last.load(Ordering::Relaxed).min(ceiling);
        Some(last.saturating_sub(self.reached.load(Ordering::Relaxed)))
    }
}

/// Encodes a time for a counter, where 0 means `None`.
fn mark(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}

fn unmark(mark: u64) -> Option<Duration> {
    mark.checked_sub(1).map(Duration::from_nanos)
}

/// The number of counters that are recorded per sequence.
#[cfg(feature = "metrics")]
pub(crate) const COUNTS: usize = 11;

/// The counts already reported to the metrics recorder since the sequence was opened. Only the increase is
/// reported: an evicted sequence counts from 0 when it is opened again, but the recorder's counters continue.
#[cfg(feature = "metrics")]
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) counts: [Counter; COUNTS],
}
