//! The history of one sequence in a process. Detects grants of a store that has lost committed writes.

use std::num::NonZeroU64;

use crate::error::{Error, ErrorKind};
use crate::store::{Change, Grant, Identity};

/// How many incarnations are kept besides the present one. The sequence was removed and created again after
/// each of them. Further incarnations displace the earliest, which would be taken for a new sequence if it
/// reappeared.
const LEFT: usize = 64;

/// The last granted id of one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) identity: Identity,
    /// The store granted all ids up to this one, to this process or to others.
    pub(crate) last: u64,
}

/// The history of one sequence in a process. The registry keeps it when the sequence is evicted.
///
/// A store moves `next` back only over ids that were given back, by this process or by others, possibly late
/// and in any order. So `next` stays above the largest id that this process *holds*: one that was granted and
/// not given back. Above that, ids may be granted again.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrantHistory {
    /// The identity of the last grant, and how far it was granted.
    present: Option<Present>,
    /// Boxed: only used if a sequence is created again, or a grant does not follow the last one.
    rare: Option<Box<Rare>>,
}

#[derive(Clone, Copy, Debug)]
struct Present {
    /// Never 0, so that `Option<Present>` takes no more memory than `Present`.
    incarnation: NonZeroU64,
    epoch: u64,
    /// The first of the consecutive held ids that end at `last`; above `last` if there are none.
    first: u64,
    /// The store granted all ids up to this one, to any process.
    last: u64,
}

#[derive(Clone, Debug, Default)]
struct Rare {
    /// The largest held id before [`Present::first`]. Only the ids granted last are given back, so lower ids
    /// need not be tracked.
    before: Option<u64>,
    /// The incarnations before the present one.
    left: Vec<Reached>,
    forgotten: u64,
}

impl Present {
    fn of(grant: &Grant) -> Option<Self> {
        let Identity { incarnation, epoch } = grant.identity;
        let (incarnation, last) = (NonZeroU64::new(incarnation)?, grant.range.last()?);
        Some(Self { incarnation, epoch, first: grant.range.start(), last })
    }

    fn identity(&self) -> Identity {
        Identity { incarnation: self.incarnation.get(), epoch: self.epoch }
    }

    fn reached(&self) -> Reached {
        Reached { identity: self.identity(), last: self.last }
    }

    fn is_empty(&self) -> bool {
        self.first > self.last
    }
}

impl GrantHistory {
    /// Returns how far the present incarnation was granted; `None` before the first grant.
    fn reached(&self) -> Option<Reached> {
        self.present.as_ref().map(Present::reached)
    }

    /// Returns the identity of the last grant.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.present.as_ref().map(Present::identity)
    }

    /// Returns how many incarnations are no longer in the history.
    pub(crate) fn forgotten(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.forgotten)
    }

    /// Creates a history of only the last grant.
    pub(crate) fn up_to(reached: Option<Reached>) -> Self {
        let present = |Reached { identity: Identity { incarnation, epoch }, last }| {
            Some(Present { incarnation: NonZeroU64::new(incarnation)?, epoch, first: 0, last })
        };
        Self { present: reached.and_then(present), rare: None }
    }

    /// Returns the largest id of the present identity that this process holds.
    fn largest_held(&self) -> Option<u64> {
        let present = self.present.as_ref()?;
        if present.is_empty() { self.rare.as_ref()?.before } else { Some(present.last) }
    }

    /// Notes a grant. Returns whether its identity differs from that of the previous grant.
    pub(crate) fn note(&mut self, grant: &Grant) -> bool {
        let Some(granted) = Present::of(grant) else { return false };
        if self.identity() == Some(grant.identity) {
            self.add(granted);
            return false;
        }
        if let Some(rare) = &mut self.rare {
            rare.before = None;
        }
        let Some(before) = self.present.replace(granted) else { return false };
        if before.incarnation != granted.incarnation {
            self.leave(before.reached());
        }
        true
    }

    /// Notes a grant of the present identity. This process must not hold any of the granted ids.
    fn add(&mut self, granted: Present) {
        self.forget_from(granted.first);
        let Some(present) = &mut self.present else { return };
        let last = present.last;
        if !present.is_empty() && last.checked_add(1) == Some(granted.first) {
            present.last = granted.last;
        } else if std::mem::replace(present, granted).first <= last {
            self.rare.get_or_insert_default().before = Some(last);
        }
    }

    /// Removes the last granted ids, from `id` on: they are given back and can be granted again.
    pub(crate) fn forget_from(&mut self, id: u64) {
        let (Some(present), Some(last)) = (&mut self.present, id.checked_sub(1)) else { return };
        if last >= present.last {
            return;
        }
        (present.first, present.last) = (present.first.min(id), last);
        if let Some(rare) = &mut self.rare {
            rare.before = rare.before.map(|before| before.min(last));
        }
    }

    fn leave(&mut self, before: Reached) {
        let rare = self.rare.get_or_insert_default();
        if rare.left.len() == LEFT {
            rare.left.remove(0);
            rare.forgotten += 1;
        }
        rare.left.push(before);
    }

    /// Returns how the grant contradicts the history; `None` if it does not. A contradiction means that the
    /// store has lost committed writes, through a restored backup or a failover.
    pub(crate) fn gone_back(&self, grant: &Grant) -> Option<String> {
        let known = self.known(grant.identity.incarnation)?;
        let (range, epoch, last) = (grant.range, grant.identity.epoch, known.last);
        // An incarnation is random: after its removal it is never created again.
        let fault = if self.identity().is_some_and(|now| now.incarnation != known.identity.incarnation) {
            format!("granted {range:?} of an incarnation that was already replaced")
        } else if epoch < known.identity.epoch {
            // Resets increment the epoch, so an earlier epoch is never used again.
            format!("is at epoch {epoch}, but was at {} before", known.identity.epoch)
        } else {
            // Compare only within one epoch: a reset may repeat ids.
            let same = self.identity() == Some(grant.identity);
            let largest = self.largest_held().filter(|largest| same && range.start() <= *largest)?;
            format!("granted {range:?}, but {largest} was granted before")
        };
        Some(format!("{fault}: it went back in time; next must be above {last}"))
    }

    /// Returns the change that raises `next` above the ids granted before the store went back in time.
    /// Without this change, other processes with less history could be granted these ids again. A late or
    /// repeated change is harmless.
    pub(crate) fn raise(&self, grant: &Grant) -> Option<Change> {
        self.gone_back(grant)?;
        go_on_after(self.known(grant.identity.incarnation)?.last, grant.identity)
    }

    /// Like [`raise`](Self::raise), for a loss that the store itself detected. The state of the store is
    /// unknown; if nothing was lost, this changes nothing.
    pub(crate) fn raise_unseen(&self) -> Option<Change> {
        let Reached { identity, last } = self.reached()?;
        go_on_after(last, identity)
    }

    fn known(&self, incarnation: u64) -> Option<Reached> {
        let left = self.rare.iter().flat_map(|rare| &rare.left).copied();
        left.chain(self.reached()).find(|known| known.identity.incarnation == incarnation)
    }

    /// Returns the error for a sequence that was seen before and does not exist: the store answered `absent`.
    pub(crate) fn gone(&self, name: &str, absent: &Error) -> Error {
        let seen = match self.reached() {
            Some(Reached { identity, last }) => format!(
                "its ids up to {last} were granted (incarnation {:x}, epoch {})",
                identity.incarnation, identity.epoch
            ),
            None => "this process has opened it before".to_owned(),
        };
        let message = format!(
            "the sequence is gone, but {seen}; restore it, or run `idmill create {name} --start N`, with N \
             above every id in use"
        );
        let error = Error::new(ErrorKind::StoreViolation, message).because(absent.clone());
        if absent.is_of_one_sequence() { error.of_one_sequence() } else { error }
    }
}

fn go_on_after(last: u64, identity: Identity) -> Option<Change> {
    Some(Change { next: Some(last.checked_add(1)?), expect: Some(identity), ..Change::default() })
}

#[cfg(all(test, not(idmill_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::range::IdRange;
    use crate::store::Bounds;

    fn grant(incarnation: u64, epoch: u64, start: u64) -> Grant {
        let identity = Identity { incarnation, epoch };
        Grant::new(IdRange::new(start, 10).unwrap(), identity, Bounds::of::<u64>())
    }

    fn history(grants: &[Grant]) -> GrantHistory {
        let mut history = GrantHistory::default();
        for grant in grants {
            assert_eq!(history.gone_back(grant), None, "{grant:?}");
            history.note(grant);
        }
        history
    }

    #[test]
    fn consecutive_grants_are_accepted() {
        let history =
            history(&[grant(1, 0, 1), grant(1, 0, 11), grant(1, 2, 1), grant(2, 0, 1), grant(2, 0, 11)]);
        assert_eq!(history.identity(), Some(Identity { incarnation: 2, epoch: 0 }));
    }

    #[test]
    fn past_identity_is_rejected_and_raised_above_known_ids() {
        let history = history(&[grant(1, 3, 1), grant(1, 3, 11), grant(2, 1, 31)]);
        // Unseen ids are rejected too: an earlier incarnation never continues.
        for (back, next) in
            [(grant(1, 3, 11), 21), (grant(1, 3, 500), 21), (grant(1, 4, 1), 21), (grant(2, 1, 40), 41)]
        {
            let fault = history.gone_back(&back).unwrap();
            assert!(fault.contains("went back in time"), "{fault}");
            let change = history.raise(&back).unwrap();
            assert_eq!(
                (change.next, change.expect, change.backwards),
                (Some(next), Some(back.identity), false)
            );
        }
        assert!(history.raise(&grant(2, 0, 90)).is_some(), "an earlier epoch");
        assert!(history.raise(&grant(2, 1, 41)).is_none() && history.raise(&grant(3, 0, 1)).is_none());
    }

    #[test]
    fn past_identities_beyond_the_limit_are_only_counted() {
        let all: Vec<_> = (1..=64 + 3).map(|incarnation| grant(incarnation, 0, 1)).collect();
        let history = history(&all);
        assert_eq!(history.forgotten(), 2);
        assert!(history.gone_back(&all[1]).is_none(), "forgotten");
        assert!(all[2..].iter().all(|grant| history.gone_back(grant).is_some()));
    }

    #[test]
    fn the_end_of_all_ids_cannot_be_raised() {
        let last = Grant { range: IdRange::new(u64::MAX - 9, 10).unwrap(), ..grant(1, 0, 1) };
        assert!(history(&[last]).raise(&grant(1, 0, 1)).is_none());
    }

    fn granted(history: &mut GrantHistory, first: u64, last: u64) {
        let range = IdRange::new(first, last - first + 1).unwrap();
        let grant = Grant { range, ..grant(1, 0, 1) };
        assert_eq!(history.gone_back(&grant), None);
        history.note(&grant);
    }

    #[test]
    fn give_backs_in_reverse_order_free_both_ranges() {
        let mut history = GrantHistory::default();
        granted(&mut history, 1, 100);
        history.forget_from(11);
        granted(&mut history, 101, 190);
        history.forget_from(101);
        assert_eq!((history.reached().unwrap().last, history.largest_held()), (100, Some(10)));
        granted(&mut history, 11, 15);
        assert!(history.gone_back(&grant(1, 0, 15)).is_some());
        assert_eq!((history.reached().unwrap().last, history.largest_held()), (15, Some(15)));
    }

    #[test]
    fn ids_of_others_are_not_held() {
        let mut history = GrantHistory::default();
        granted(&mut history, 11, 20);
        granted(&mut history, 31, 40);
        history.forget_from(31);
        assert_eq!((history.reached().unwrap().last, history.largest_held()), (30, Some(20)));
        granted(&mut history, 51, 60);
        history.forget_from(51);
        assert_eq!(history.largest_held(), Some(20));
        history.forget_from(11);
        assert_eq!(history.largest_held(), Some(10), "ids below 11 count as held, even if never granted");
        granted(&mut history, 41, 50);
        history.note(&grant(1, 1, 1));
        history.forget_from(1);
        assert_eq!(history.largest_held(), None, "another epoch");
    }

    proptest! {
        /// Compares the history with a set of ids. Each step is a grant after ids of others, then a give-back
        /// of its end.
        #[test]
        fn largest_held_is_that_of_a_set(
            steps in prop::collection::vec((0..5_u64, 1..8_u64, 0..8_u64), 1..40),
        ) {
            let (mut history, mut set, mut next) = (GrantHistory::default(), BTreeSet::new(), 3);
            for (others, count, back) in steps {
                let (first, last) = (next + others, next + others + count - 1);
                granted(&mut history, first, last);
                set.extend(first..=last);
                next = last + 1 - back.min(count);
                history.forget_from(next);
                set.split_off(&next);
                prop_assert_eq!(history.largest_held(), set.last().copied());
                prop_assert_eq!(history.reached().map(|reached| reached.last + 1), Some(next));
                // Other processes gave their ids back: the next grant continues after the known ids.
                if back == 7 {
                    next = set.last().map_or(3, |last| last + 1);
                }
            }
        }
    }
}
