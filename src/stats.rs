//! What is counted of one sequence, cheaply enough to be always on: the draws themselves count nothing.

use crate::store::{Grant, Identity};
use crate::sync::{Counter, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident / $add:ident),* $(,)?) => {
        /// Counters of one sequence. All accesses are `Relaxed`: nothing is inferred from one counter about another.
        #[derive(Debug, Default)]
        pub(crate) struct Stats {
            $($(#[$doc])* $name: Counter,)*
            /// Ids drawn a second, as the bits of an `f64`.
            rate: Counter,
            incarnation: Counter,
            epoch: Counter,
            /// The last id there can be, and the last that was granted.
            last: Counter,
            reached: Counter,
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
    /// Calls that found nothing in memory and waited.
    waits / add_waits,
    /// Nanoseconds during which at least one caller waited.
    dry_nanos / add_dry_nanos,
    /// Ids lost because what was in memory was revoked, closed or evicted.
    revoked / gap_revoked,
    /// Of those, the ids that the store took back.
    given_back / add_given_back,
    /// Ids lost because whoever asked for them had given up, or belonged to another time of the sequence.
    abandoned / gap_abandoned,
    /// Ids lost after they had left memory: by a cancelled caller, a failed `take`, a lease that ended.
    dropped / gap_dropped,
    /// Ids that may have been reserved by requests whose outcome is unknown: an upper bound.
    unknown / gap_unknown,
}

impl Stats {
    /// The actor took ids out of memory for a caller that waits: they count as replied, or as a gap, when that is done.
    pub(crate) fn unpublish(&self, ids: u64) {
        self.published.fetch_sub(ids, Ordering::Relaxed);
    }

    pub(crate) fn note_rate(&self, rate: f64) {
        self.rate.store(rate.to_bits(), Ordering::Relaxed);
    }

    /// Ids drawn a second, as the refill policy believes.
    pub(crate) fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    pub(crate) fn note_grant(&self, grant: &Grant) {
        self.incarnation.store(grant.identity.incarnation, Ordering::Relaxed);
        self.epoch.store(grant.identity.epoch, Ordering::Relaxed);
        self.last.store(grant.bounds.max(), Ordering::Relaxed);
        self.reached.store(grant.range.last().unwrap_or_default(), Ordering::Relaxed);
    }

    /// Which sequence the ids in memory belong to; `None` before the first grant.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let incarnation = self.incarnation.load(Ordering::Relaxed);
        (incarnation != 0).then(|| Identity { incarnation, epoch: self.epoch.load(Ordering::Relaxed) })
    }

    /// How many ids were left to reserve, of those up to `ceiling`, at the last grant; `None` before that.
    pub(crate) fn unreserved(&self, ceiling: u64) -> Option<u64> {
        self.identity()?;
        let last = self.last.load(Ordering::Relaxed).min(ceiling);
        Some(last.saturating_sub(self.reached.load(Ordering::Relaxed)))
    }
}
