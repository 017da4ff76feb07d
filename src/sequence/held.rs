//! The ids of one identity that a process was granted and did not give back.
//!
//! A store moves `next` back only over ids that were given back, by this process or by others, late and in any
//! order. So it stays above the largest id that this process holds; above that, a range may be granted again.

/// The most gaps that are kept. Give-backs are of the last ids that were granted, and so mostly end in the range
/// of one grant. The ids of a forgotten gap count as held.
const GAPS: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Held {
    first: u64,
    /// The store granted all ids up to this one to somebody. Larger than the largest id that is held after a
    /// give-back of ids that followed those of others.
    last: u64,
    /// Ids between those two that are not held, as (first, last), in growing order. The ids of the only process
    /// have no gaps.
    gaps: Vec<(u64, u64)>,
}

impl Held {
    /// All ids from `first` to `last`.
    pub(crate) fn new(first: u64, last: u64) -> Self {
        Self { first, last, gaps: Vec::new() }
    }

    /// The store granted all ids up to this one to somebody.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The largest id that is held.
    pub(crate) fn largest(&self) -> Option<u64> {
        let largest = match self.gaps.last() {
            Some((first, last)) if *last == self.last => first.checked_sub(1)?,
            _ => self.last,
        };
        (largest >= self.first).then_some(largest)
    }

    /// A grant of ids that are not held.
    pub(crate) fn add(&mut self, first: u64, last: u64) {
        self.give_back_from(first);
        if self.largest().is_none() {
            *self = Self::new(first, last);
        } else if first > self.last.saturating_add(1) {
            self.add_gap(self.last + 1, first - 1);
        }
        self.last = last;
    }

    /// The ids from `id` on are not held any more.
    pub(crate) fn give_back_from(&mut self, id: u64) {
        let Some(last) = id.checked_sub(1).filter(|last| *last < self.last) else { return };
        self.last = last;
        self.gaps.retain(|(first, _)| *first <= last);
        if let Some(gap) = self.gaps.last_mut() {
            gap.1 = gap.1.min(last);
        }
    }

    fn add_gap(&mut self, first: u64, last: u64) {
        if let Some(before) = self.gaps.last_mut().filter(|before| before.1 == first - 1) {
            before.1 = last;
            return;
        }
        if self.gaps.len() == GAPS {
            self.gaps.remove(0);
        }
        self.gaps.push((first, last));
    }
}

#[cfg(all(test, not(idmill_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn give_backs_in_reverse_order_free_both_ranges() {
        let mut held = Held::new(1, 100);
        held.give_back_from(11);
        held.add(101, 190);
        held.give_back_from(101);
        assert_eq!((held.last(), held.largest()), (100, Some(10)));
        held.add(11, 15);
        assert_eq!((held.last(), held.largest()), (15, Some(15)));
    }

    #[test]
    fn ids_of_others_are_not_held() {
        let mut held = Held::new(1, 10);
        held.add(21, 30);
        assert_eq!(held.largest(), Some(30));
        held.give_back_from(21);
        assert_eq!((held.last(), held.largest()), (20, Some(10)));
        held.add(41, 50);
        held.give_back_from(41);
        assert_eq!((held.last(), held.largest()), (40, Some(10)), "one gap, not two");
        held.give_back_from(1);
        assert_eq!(held.largest(), None);
    }

    #[test]
    fn ids_of_a_forgotten_gap_count_as_held() {
        let mut held = Held::new(10, 10);
        for id in (20..=100).step_by(10) {
            held.add(id, id);
        }
        assert_eq!(held.gaps.len(), GAPS);
        for id in (70..=100).rev().step_by(10) {
            held.give_back_from(id);
            assert_eq!(held.largest(), Some(id - 10));
        }
        held.give_back_from(60);
        assert_eq!(held.largest(), Some(59));
    }

    proptest! {
        /// Beside a set of ids. Each step is a grant after ids of others, and a give-back of its last ids.
        #[test]
        fn largest_is_that_of_a_set(steps in prop::collection::vec((0..5_u64, 1..8_u64, 0..8_u64), 1..40)) {
            let (mut held, mut set, mut next) = (None::<Held>, BTreeSet::new(), 3);
            for (others, count, back) in steps {
                let (first, last) = (next + others, next + others + count - 1);
                match &mut held {
                    Some(held) => held.add(first, last),
                    None => held = Some(Held::new(first, last)),
                }
                set.extend(first..=last);
                let held = held.as_mut().expect("granted");
                next = last + 1;
                if back > 0 {
                    next -= back.min(count);
                    held.give_back_from(next);
                    set.split_off(&next);
                }
                // Others gave back what they had, and the next grant begins there.
                if back == 7 {
                    next = set.last().map_or(3, |last| last + 1);
                }
                prop_assert_eq!(held.largest(), set.last().copied());
            }
        }
    }
}
