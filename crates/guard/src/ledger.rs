//! The claims of a sequence, and the rules for using a range. Pure: no store, no clock.

use idmill::IdRange;
use idmill::store::{Identity, SequenceInfo};
use std::sync::Arc;

/// The claimed ranges of one sequence.
///
/// All ids below `floor` count as claimed, and so do the `claims` above it. A high-water mark would not be
/// enough. Two processes that reserve concurrently may claim in reverse order; with only a mark, the store
/// would appear to have gone back in time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Ledger {
    /// The sequence that the claims belong to.
    pub identity: Identity,
    /// No id below this can be claimed. A `u128`, because it can be 2^64.
    pub floor: u128,
    /// All ids from here to `floor` are claimed. Lower ids may have been skipped. `solid` is at most `floor`.
    pub solid: u128,
    /// The ranges claimed above `floor`: ascending, not adjacent, at most [`MOST_CLAIMS`](Self::MOST_CLAIMS).
    pub claims: Vec<IdRange>,
    /// The pending administrative change through the guard, or a removal that is done.
    pub announced: Option<Announced>,
    /// Counts changes, so that successive ledgers differ. A late or duplicate write then fails its condition.
    pub version: u64,
    /// A random number that a witness may add to each write to recognize its own. Without it, two processes
    /// that were granted the same range would write equal ledgers. A process that got no reply would then
    /// mistake the other's ledger for its own.
    pub stamp: u64,
    /// The place of the store that the sequence is in, as given to [`Guarded::at`](super::Guarded::at).
    pub store: Option<Arc<str>>,
}

/// An administrative change of a sequence through the guard.
///
/// An announcement has two phases. Before the store has confirmed the change, it is *pending*, and permits
/// nothing. It is *done* once the store has confirmed the change. If the store definitely rejects the change,
/// the announcement is withdrawn. If the outcome is unknown, it stays pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Announced {
    /// Pending: the sequence is being set to a lower id.
    Resetting {
        /// The next id after the reset. A `u128`, because it can be 2^64.
        start: u128,
    },
    /// Pending: the sequence is being raised to the floor. The ids below are in use.
    Raising,
    /// Pending: the sequence is being removed.
    Removing,
    /// Done: the sequence was removed. A new incarnation must start above all claims.
    Removed,
    /// Done: the sequence was removed, and a new incarnation may start anywhere.
    Forgotten,
}

impl Announced {
    /// Returns whether the store has not yet confirmed the change.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Resetting { .. } | Self::Raising | Self::Removing)
    }

    /// Returns the announcement that applies after a claim under `now`; `None` if the announcement has become
    /// void. `known` is the ledger's identity, and has the same incarnation as `now`.
    fn once_claimed(self, known: Identity, now: Identity) -> Option<Self> {
        match self {
            // A reset is void under a new identity, because it was announced for the old one.
            Self::Resetting { .. } => (now == known).then_some(self),
            // The range is above the floor, so the store was raised.
            Self::Raising => None,
            // The sequence is in use: it was restored, or this claim is late. The sequence's claims count
            // again.
            Self::Forgotten => Some(Self::Removed),
            Self::Removing | Self::Removed => Some(self),
        }
    }
}

/// The reason why a range must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The ledger belongs to another incarnation. The store was emptied, restored to a state before the
    /// sequence was created, or is a different store; or the sequence was removed without the guard.
    Replaced {
        /// The identity of the ledger.
        known: Identity,
    },
    /// The sequence was reset or revoked, and the store has an epoch from before that.
    BehindReset {
        /// The identity of the ledger.
        known: Identity,
    },
    /// The sequence follows a removed one of the same name and starts below the claims of the removed one.
    /// The store is fine; only the next id must be raised.
    Recreated {
        /// The first id above all claims of the removed sequence.
        top: u128,
    },
    /// Some of the ids were claimed before, or may have been.
    Claimed {
        /// The first id above all claims.
        top: u128,
        /// Whether the store definitely went back in time: it had granted higher ids before, or an id of the
        /// range was definitely claimed. If not, the claim may have arrived too late, after many others.
        went_back: bool,
    },
    /// The range is below ids that were claimed before the reserve, and the ledger has changed since. The
    /// store went back, or another process gave ids back. A new reserve shows which.
    Outdated,
}

/// The repair of a store that granted claimed ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Heal {
    /// None: the store is above all claims, or has another identity. For example, other processes reserved
    /// later but claimed earlier.
    Nothing,
    /// The store's next id is below the claims, and must be raised to this one.
    Raise(u64),
    /// The store's next id is below the claims, and all ids up to its last were claimed.
    Exhausted,
}

impl Heal {
    /// Returns the repair of a store with the sequence `stored`, if ids below `top` were claimed under
    /// `identity`.
    pub fn of(stored: &SequenceInfo, identity: Identity, top: u128) -> Self {
        if stored.identity != identity || stored.reached() >= top {
            return Self::Nothing;
        }
        let next = u64::try_from(top).ok().filter(|next| *next <= stored.bounds.max());
        next.map_or(Self::Exhausted, Self::Raise)
    }
}

impl Ledger {
    /// The maximum number of separate ranges above the floor. Beyond this, the floor is raised over the
    /// lowest range. A process that is slow to claim ids below the floor must then reserve other ids.
    pub const MOST_CLAIMS: usize = 8;

    /// Returns the ledger after a claim of `range`, which was reserved after `before` was read from the
    /// witness. `now` is the current ledger.
    ///
    /// A store grants ids in ascending order, except ids that were given back, and these are taken out of the
    /// ledger first. So if `range` is below the top of `before`, and the ledger is unchanged, the store went
    /// back in time. This also protects ids that were never claimed, such as ids drawn without the
    /// guard.
    ///
    /// # Errors
    /// The reason why `range` must not be used.
    pub fn judge(
        before: Option<&Self>,
        now: Option<&Self>,
        identity: Identity,
        range: IdRange,
    ) -> Result<Self, Refusal> {
        Self::judge_within(Self::MOST_CLAIMS, before, now, identity, range)
    }

    /// Like [`judge`](Self::judge), with at most `most` ranges above the floor: for small models.
    ///
    /// # Errors
    /// As [`judge`](Self::judge).
    pub fn judge_within(
        most: usize,
        before: Option<&Self>,
        now: Option<&Self>,
        identity: Identity,
        range: IdRange,
    ) -> Result<Self, Refusal> {
        let claimed = Self::claim_within(most, now, identity, range);
        let is_below = |before: &&Self| {
            before.identity.incarnation == identity.incarnation
                && before.has_claims()
                && u128::from(range.start()) < before.top()
        };
        match (before.filter(is_below), &claimed) {
            (Some(before), Ok(_) | Err(Refusal::Claimed { .. })) if now == Some(before) => {
                Err(Refusal::Claimed { top: before.top(), went_back: true })
            }
            (Some(_), Ok(_) | Err(Refusal::Claimed { .. })) => Err(Refusal::Outdated),
            _ => claimed,
        }
    }

    /// Returns the ledger after a claim of `range`, without a look at the order of grants.
    ///
    /// # Errors
    /// The reason why `range` must not be used.
    pub fn claim(seen: Option<&Self>, identity: Identity, range: IdRange) -> Result<Self, Refusal> {
        Self::claim_within(Self::MOST_CLAIMS, seen, identity, range)
    }

    fn claim_within(
        most: usize,
        seen: Option<&Self>,
        identity: Identity,
        range: IdRange,
    ) -> Result<Self, Refusal> {
        let Some(seen) = seen else { return Ok(Self::begun(identity, range, 0)) };
        let (known, version) = (seen.identity, seen.version + 1);
        if identity.incarnation != known.incarnation {
            let mut next = match seen.announced {
                Some(Announced::Forgotten) => return Ok(Self::begun(identity, range, version)),
                Some(Announced::Removed) => seen.followed_by(identity),
                _ => return Err(Refusal::Replaced { known }),
            };
            if next.has_any_of(range) {
                return Err(Refusal::Recreated { top: next.floor });
            }
            next.add(range, most);
            return Ok(next);
        }
        // A higher epoch is no proof of a reset: a revocation raises it, and so does a dump restored
        // elsewhere. Claimed ids stay claimed.
        if identity.epoch < known.epoch {
            return Err(Refusal::BehindReset { known });
        }
        if seen.has_any_of(range) {
            return Err(Refusal::Claimed { top: seen.top(), went_back: seen.certainly_has_any_of(range) });
        }
        let announced = seen.announced.and_then(|announced| announced.once_claimed(known, identity));
        let mut ledger = Self { identity, announced, version, ..seen.clone() };
        ledger.add(range, most);
        Ok(ledger)
    }

    /// Returns the ledger after `rest`, the end of a claimed range, is released. Returns `None` if `rest` is
    /// not the end of all claims, or while an announcement is pending: a raise may be about to skip these
    /// ids.
    pub fn release(&self, identity: Identity, rest: IdRange) -> Option<Self> {
        let is_pending = self.announced.is_some_and(Announced::is_pending);
        if is_pending || identity != self.identity || rest.is_empty() || rest.end() != self.top() {
            return None;
        }
        let mut ledger = Self { version: self.version + 1, ..self.clone() };
        match ledger.claims.pop() {
            None => {
                ledger.floor = rest.start().into();
                ledger.solid = ledger.solid.min(ledger.floor);
            }
            Some(last) => {
                let left = IdRange::new(last.start(), rest.start().checked_sub(last.start())?)?;
                ledger.claims.extend((!left.is_empty()).then_some(left));
            }
        }
        Some(ledger)
    }

    /// Returns the first id above all claims.
    pub fn top(&self) -> u128 {
        self.claims.last().map_or(self.floor, IdRange::end)
    }

    /// Returns a ledger with this claim. The state of lower ids is unknown: they may have been handed out
    /// before there was a witness.
    fn begun(identity: Identity, range: IdRange, version: u64) -> Self {
        Self { solid: range.start().into(), version, ..Self::at(identity, range.end()) }
    }

    /// Returns the ledger of a new incarnation that starts above all claims. No id counts as definitely
    /// claimed, because none was claimed from the new incarnation.
    pub(super) fn followed_by(&self, identity: Identity) -> Self {
        let (version, stamp, store) = (self.version + 1, self.stamp, self.store.clone());
        Self { version, stamp, store, ..Self::at(identity, self.top()) }
    }

    /// Returns a ledger without claims above this floor. No id below is definitely claimed.
    pub(super) fn at(identity: Identity, floor: u128) -> Self {
        let (claims, announced) = (Vec::new(), None);
        Self { identity, floor, solid: floor, claims, announced, version: 0, stamp: 0, store: None }
    }

    /// Raises the floor to at least `to`. That ids below were claimed is then no longer certain.
    pub(super) fn raise_floor(&mut self, to: u128) {
        if to <= self.floor {
            return;
        }
        self.claims.retain(|claim| claim.end() > to);
        // A claim that reaches over `to` is part of the floor.
        let reaches = self.claims.first().is_some_and(|first| u128::from(first.start()) <= to);
        self.floor = if reaches { self.claims.remove(0).end() } else { to };
        self.solid = self.floor;
    }

    fn has_any_of(&self, range: IdRange) -> bool {
        u128::from(range.start()) < self.floor || self.claims.iter().any(|claim| claim.overlaps(&range))
    }

    /// Whether the last id below the top was certainly claimed.
    fn has_claims(&self) -> bool {
        !self.claims.is_empty() || self.solid < self.floor
    }

    fn certainly_has_any_of(&self, range: IdRange) -> bool {
        // If `solid` equals `floor`, no id below the floor is definitely claimed.
        let Self { solid, floor, .. } = *self;
        let is_solid = solid < floor && range.end() > solid && u128::from(range.start()) < floor;
        is_solid || self.claims.iter().any(|claim| claim.overlaps(&range))
    }

    fn add(&mut self, range: IdRange, most: usize) {
        let at = self.claims.partition_point(|claim| claim.start() < range.start());
        self.claims.insert(at, range);
        self.claims = joined(&self.claims);
        while self.claims.first().is_some_and(|lowest| u128::from(lowest.start()) == self.floor)
            || self.claims.len() > most
        {
            let lowest = self.claims.remove(0);
            if u128::from(lowest.start()) != self.floor {
                self.solid = lowest.start().into();
            }
            self.floor = lowest.end();
        }
    }
}

/// Merges adjacent ranges.
fn joined(claims: &[IdRange]) -> Vec<IdRange> {
    let mut joined: Vec<IdRange> = Vec::with_capacity(claims.len());
    for claim in claims {
        match joined.last_mut().and_then(|last| Some((join(*last, *claim)?, last))) {
            Some((both, last)) => *last = both,
            None => joined.push(*claim),
        }
    }
    joined
}

/// Merges two ranges if the second begins where the first ends.
fn join(first: IdRange, second: IdRange) -> Option<IdRange> {
    let is_next = first.end() == u128::from(second.start());
    is_next.then(|| IdRange::new(first.start(), first.len().checked_add(second.len())?)).flatten()
}

#[cfg(test)]
mod tests;
