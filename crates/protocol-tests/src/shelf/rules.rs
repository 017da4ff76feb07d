//! The decisions of a shelf. Pure: no store, no clock.

use idmill::IdRange;
use idmill::store::Identity;

/// The shelf of one sequence: ranges that were reserved, never handed out, and returned.
///
/// It is a record of the store, and every change replaces the text that was read. Each text has a stamp of
/// its own: otherwise, two processes that take the same range would write equal texts, and a store that
/// sends a write again would take the text of one for the text of the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shelf {
    /// The sequence that the ranges were reserved from. Under any other identity they are void.
    pub(super) identity: Identity,
    /// The largest `next` that a raise has set: ids below may be in use.
    pub(super) raised: u128,
    /// Ascending, neither overlapping nor adjacent, at most [`MOST_RANGES`](Self::MOST_RANGES).
    pub(super) ranges: Vec<IdRange>,
    /// Differs between any two texts: a random number, or in the models the writer's number and a count.
    pub(super) stamp: u64,
}

/// What to do with a range that is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// Write this shelf.
    Add(Shelf),
    /// The shelf belongs to another incarnation, and nothing shows which of the two is older. If the sequence
    /// still has the identity of the range, replace the shelf. If not, the range is a gap.
    Compare,
    /// The range is a gap.
    Gap,
}

impl Shelf {
    /// The maximum number of ranges. The smallest range beyond it is dropped, and is a gap.
    pub(super) const MOST_RANGES: usize = 32;

    fn empty(identity: Identity, raised: u128) -> Self {
        Self { identity, raised, ranges: Vec::new(), stamp: 0 }
    }

    /// Adds a range that was reserved under `identity`, and that no other process has.
    pub(super) fn returned(seen: Option<&Self>, identity: Identity, rest: IdRange, most: usize) -> Returned {
        match seen {
            Some(seen) if seen.identity == identity => seen.with(rest, most),
            Some(seen) if seen.identity.incarnation != identity.incarnation => Returned::Compare,
            Some(seen) if seen.identity.epoch > identity.epoch => Returned::Gap,
            _ => Self::replacing(identity, rest),
        }
    }

    /// Returns a shelf with only this range, for a sequence whose shelf is void or missing.
    pub(super) fn replacing(identity: Identity, rest: IdRange) -> Returned {
        Self::empty(identity, 0).with(rest, 1)
    }

    fn with(&self, rest: IdRange, most: usize) -> Returned {
        // A range can overlap the shelf only if one of them was returned twice, or after a restore.
        let is_there = self.ranges.iter().any(|range| range.overlaps(&rest));
        if rest.is_empty() || is_there || u128::from(rest.start()) < self.raised {
            return Returned::Gap;
        }
        let mut ranges = self.ranges.clone();
        ranges.insert(ranges.partition_point(|range| range.start() < rest.start()), rest);
        ranges = joined(&ranges);
        while ranges.len() > most {
            let smallest = (0..ranges.len()).min_by_key(|place| ranges[*place].len()).unwrap_or_default();
            ranges.remove(smallest);
        }
        Returned::Add(Self { ranges, ..self.clone() })
    }

    /// Removes up to `count` ids for a process without ids in memory: the first ids of the lowest range that
    /// begins above `floor`, the largest id that the process handed out, and its identity. No id is above
    /// `ceiling`. Returns the shelf to write and the ids.
    ///
    /// The ids may be used only if, after the write, the sequence still has the identity of the shelf, in
    /// the history in which the store grants ids.
    pub(super) fn taken(
        &self,
        floor: Option<(Identity, u64)>,
        count: u64,
        ceiling: u64,
    ) -> Option<(Self, IdRange)> {
        let floor = floor.filter(|(identity, _)| *identity == self.identity).map(|(_, id)| id);
        let is_usable =
            |range: &IdRange| floor.is_none_or(|floor| range.start() > floor) && range.start() <= ceiling;
        let place = self.ranges.iter().position(is_usable)?;
        let mut ranges = self.ranges.clone();
        let below = ceiling - ranges[place].start();
        let ids = ranges[place].take_front(count.max(1).min(below.saturating_add(1)));
        ranges.retain(|range| !range.is_empty());
        Some((Self { ranges, ..self.clone() }, ids))
    }

    /// Clears the shelf before `next` of the sequence is raised to `to`: the ids below are in use. The mark
    /// stays, since a process may return such ids later. Returns `None` if the sequence was reset since it
    /// was read.
    pub(super) fn raised(seen: Option<&Self>, identity: Identity, to: u128) -> Option<Self> {
        let of_it = seen.filter(|seen| seen.identity.incarnation == identity.incarnation);
        if of_it.is_some_and(|seen| seen.identity.epoch > identity.epoch) {
            return None;
        }
        let before = of_it.filter(|seen| seen.identity == identity).map_or(0, |seen| seen.raised);
        Some(Self::empty(identity, before.max(to)))
    }
}

/// Merges adjacent ranges.
fn joined(ranges: &[IdRange]) -> Vec<IdRange> {
    let mut joined: Vec<IdRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().and_then(|last| Some((join(*last, *range)?, last))) {
            Some((both, last)) => *last = both,
            None => joined.push(*range),
        }
    }
    joined
}

fn join(first: IdRange, second: IdRange) -> Option<IdRange> {
    let is_next = first.end() == u128::from(second.start());
    is_next.then(|| IdRange::new(first.start(), first.len().checked_add(second.len())?)).flatten()
}
