//! The history of one sequence in a process, and the grants that show that its store lost committed writes.

use std::num::NonZeroU64;

use crate::error::{Error, ErrorKind};
use crate::store::{Change, Grant, Identity};

/// So many incarnations are remembered besides the present one. Each of them was removed and
/// created again while the process ran; of more, the earliest is forgotten, and would be taken for
/// a new sequence if it came back.
const LEFT: usize = 64;

/// How far one incarnation was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) identity: Identity,
    /// The store granted all ids up to this one, to this process or to others.
    pub(crate) last: u64,
}

/// The history of one sequence in a process. It outlives the eviction of the sequence, in the registry.
///
/// A store moves `next` back only over ids that were given back, by this process or by others, late and in any
/// order. So it stays above the largest id that this process *holds*: was granted and did not give back. Above
/// that, ids may be granted again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The sequence of the last grant.
    present: Option<Present>,
    /// Boxed: a sequence that is never created again, and of which no other process draws, has none of it.
    rare: Option<Box<Rare>>,
}

#[derive(Clone, Copy, Debug)]
struct Present {
    /// Never 0, which keeps a million sequences smaller.
    incarnation: NonZeroU64,
    epoch: u64,
    /// The ids without a gap that were granted last, as far as they are held; none if `first` is the larger.
    first: u64,
    /// The store granted all ids up to this one to somebody.
    last: u64,
}

#[derive(Clone, Debug, Default)]
struct Rare {
    /// The largest id before [`Present::first`] that is held. Only the ids that were granted last are given back,
    /// so the lower ones need not be known.
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

impl Seen {
    /// How far the present incarnation was granted; `None` before the first grant.
    fn reached(&self) -> Option<Reached> {
        self.present.as_ref().map(Present::reached)
    }

    /// Which sequence ids came from last.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.present.as_ref().map(Present::identity)
    }

    /// How many incarnations were seen and are forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.forgotten)
    }

    /// A history of only the last grant.
    pub(crate) fn up_to(reached: Option<Reached>) -> Self {
        let present = |Reached { identity: Identity { incarnation, epoch }, last }| {
            Some(Present { incarnation: NonZeroU64::new(incarnation)?, epoch, first: 0, last })
        };
        Self { present: reached.and_then(present), rare: None }
    }

    /// The largest id of the present identity that this process holds.
    fn largest_held(&self) -> Option<u64> {
        let present = self.present.as_ref()?;
        if present.is_empty() { self.rare.as_ref()?.before } else { Some(present.last) }
    }

    /// Notes where ids come from; whether that is another sequence than before.
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

    /// Ids of the present identity that are not held were granted.
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

    /// The ids from this one on, the last that were granted, can be granted again: they are given back.
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

    /// What shows that the store has lost what it had committed: by a restored backup, or
    /// a failover that lost writes.
    pub(crate) fn gone_back(&self, grant: &Grant) -> Option<String> {
        let known = self.known(grant.identity.incarnation)?;
        let (range, epoch, last) = (grant.range, grant.identity.epoch, known.last);
        // An incarnation is random: one that was removed is never created again.
        let fault = if self.identity().is_some_and(|now| now.incarnation != known.identity.incarnation) {
            format!("granted {range:?} of an incarnation that another had followed")
        } else if epoch < known.identity.epoch {
            // Resets count up, so an epoch that was left does not come again.
            format!("is at epoch {epoch}, although it was at {} before", known.identity.epoch)
        } else {
            // Of an epoch that comes later nothing is held.
            let same = self.identity() == Some(grant.identity);
            let largest = self.largest_held().filter(|largest| same && range.start() <= *largest)?;
            format!("granted {range:?}, although {largest} was granted before")
        };
        Some(format!("{fault}: it went back in time, and was told to go on after {last}"))
    }

    /// What keeps others, who may know less, from being granted again what this process was granted before
    /// the store went back. It only raises `next`: late, or twice, it does no harm.
    pub(crate) fn raise(&self, grant: &Grant) -> Option<Change> {
        self.gone_back(grant)?;
        go_on_after(self.known(grant.identity.incarnation)?.last, grant.identity)
    }

    /// The same, where the store refused because it noticed by itself. What it has of the sequence is not
    /// known: where nothing was lost, this changes nothing.
    pub(crate) fn raise_unseen(&self) -> Option<Change> {
        let Reached { identity, last } = self.reached()?;
        go_on_after(last, identity)
    }

    fn known(&self, incarnation: u64) -> Option<Reached> {
        let left = self.rare.iter().flat_map(|rare| &rare.left).copied();
        left.chain(self.reached()).find(|known| known.identity.incarnation == incarnation)
    }

    /// The error for a sequence that was seen, and is gone: the store answered `absent`.
    pub(crate) fn gone(&self, name: &str, absent: &Error) -> Error {
        let seen = match self.reached() {
            Some(Reached { identity, last }) => format!(
                "ids up to {last} of it were granted to this process (incarnation {:x}, epoch {})",
                identity.incarnation, identity.epoch
            ),
            None => "this process has seen it".to_owned(),
        };
        let message = format!(
            "the sequence is gone, although {seen}: it was removed, or the store was emptied, replaced or restored. It is not begun \
             anew, since that could hand out ids twice. If it was removed on purpose, `idmill create {name}`; else find out what \
             happened to the store, and create it to begin above every id in use, `idmill create {name} --start N`"
        );
        Error::new(ErrorKind::StoreViolation, message).because(absent.clone())
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
        Grant { range: IdRange::new(start, 10).unwrap(), identity, bounds: Bounds::of::<u64>() }
    }

    fn seen(grants: &[Grant]) -> Seen {
        let mut seen = Seen::default();
        for grant in grants {
            assert_eq!(seen.gone_back(grant), None, "{grant:?}");
            seen.note(grant);
        }
        seen
    }

    #[test]
    fn what_follows_is_believed() {
        let seen = seen(&[grant(1, 0, 1), grant(1, 0, 11), grant(1, 2, 1), grant(2, 0, 1), grant(2, 0, 11)]);
        assert_eq!(seen.identity(), Some(Identity { incarnation: 2, epoch: 0 }));
    }

    #[test]
    fn what_was_left_does_not_come_again_and_is_raised_above_what_is_known() {
        let seen = seen(&[grant(1, 3, 1), grant(1, 3, 11), grant(2, 1, 31)]);
        // Also where it goes on: others may have been granted that.
        for (back, next) in
            [(grant(1, 3, 11), 21), (grant(1, 3, 500), 21), (grant(1, 4, 1), 21), (grant(2, 1, 40), 41)]
        {
            let fault = seen.gone_back(&back).unwrap();
            assert!(fault.contains("went back in time"), "{fault}");
            let change = seen.raise(&back).unwrap();
            assert_eq!(
                (change.next, change.expect, change.backwards),
                (Some(next), Some(back.identity), false)
            );
        }
        assert!(seen.raise(&grant(2, 0, 90)).is_some(), "an epoch that was left");
        assert!(seen.raise(&grant(2, 1, 41)).is_none() && seen.raise(&grant(3, 0, 1)).is_none());
    }

    #[test]
    fn so_many_are_remembered_and_those_that_are_not_are_counted() {
        let all: Vec<_> = (1..=LEFT as u64 + 3).map(|incarnation| grant(incarnation, 0, 1)).collect();
        let seen = seen(&all);
        assert_eq!(seen.forgotten(), 2);
        assert!(seen.gone_back(&all[1]).is_none(), "forgotten");
        assert!(all[2..].iter().all(|grant| seen.gone_back(grant).is_some()));
    }

    #[test]
    fn the_end_of_all_ids_cannot_be_raised() {
        let last = Grant { range: IdRange::new(u64::MAX - 9, 10).unwrap(), ..grant(1, 0, 1) };
        assert!(seen(&[last]).raise(&grant(1, 0, 1)).is_none());
    }

    fn granted(seen: &mut Seen, first: u64, last: u64) {
        let range = IdRange::new(first, last - first + 1).unwrap();
        let grant = Grant { range, ..grant(1, 0, 1) };
        assert_eq!(seen.gone_back(&grant), None);
        seen.note(&grant);
    }

    #[test]
    fn give_backs_in_reverse_order_free_both_ranges() {
        let mut seen = Seen::default();
        granted(&mut seen, 1, 100);
        seen.forget_from(11);
        granted(&mut seen, 101, 190);
        seen.forget_from(101);
        assert_eq!((seen.reached().unwrap().last, seen.largest_held()), (100, Some(10)));
        granted(&mut seen, 11, 15);
        assert!(seen.gone_back(&grant(1, 0, 15)).is_some());
        assert_eq!((seen.reached().unwrap().last, seen.largest_held()), (15, Some(15)));
    }

    #[test]
    fn ids_of_others_are_not_held() {
        let mut seen = Seen::default();
        granted(&mut seen, 11, 20);
        granted(&mut seen, 31, 40);
        seen.forget_from(31);
        assert_eq!((seen.reached().unwrap().last, seen.largest_held()), (30, Some(20)));
        granted(&mut seen, 51, 60);
        seen.forget_from(51);
        assert_eq!(seen.largest_held(), Some(20));
        seen.forget_from(11);
        assert_eq!(seen.largest_held(), Some(10), "which ids before the gap are held is not known");
        granted(&mut seen, 41, 50);
        seen.note(&grant(1, 1, 1));
        seen.forget_from(1);
        assert_eq!(seen.largest_held(), None, "another epoch");
    }

    proptest! {
        /// Beside a set of ids. Each step is a grant after ids of others, and a give-back of its last ids.
        #[test]
        fn largest_held_is_that_of_a_set(
            steps in prop::collection::vec((0..5_u64, 1..8_u64, 0..8_u64), 1..40),
        ) {
            let (mut seen, mut set, mut next) = (Seen::default(), BTreeSet::new(), 3);
            for (others, count, back) in steps {
                let (first, last) = (next + others, next + others + count - 1);
                granted(&mut seen, first, last);
                set.extend(first..=last);
                next = last + 1 - back.min(count);
                seen.forget_from(next);
                set.split_off(&next);
                prop_assert_eq!(seen.largest_held(), set.last().copied());
                prop_assert_eq!(seen.reached().map(|reached| reached.last + 1), Some(next));
                // Others gave back what they had, and the next grant begins there.
                if back == 7 {
                    next = set.last().map_or(3, |last| last + 1);
                }
            }
        }
    }
}
