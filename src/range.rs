//! Ranges of ids.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::FusedIterator;
use std::marker::PhantomData;

use crate::id::Id;

/// Consecutive ids `[start, start + len)`.
///
/// Stored as start and length instead of start and end, so that a range can contain [`u64::MAX`]: all
/// arithmetic is on offsets and cannot wrap. Iterating yields the ids in ascending order.
///
/// ```
/// let mut range = idmill::IdRange::<u64>::new(u64::MAX - 2, 3).unwrap();
/// assert_eq!(range.take_front(2).iter().collect::<Vec<_>>(), [u64::MAX - 2, u64::MAX - 1]);
/// assert_eq!(range.last(), Some(u64::MAX));
/// assert_eq!(idmill::IdRange::<u64>::new(u64::MAX, 2), None);
/// ```
pub struct IdRange<T = u64> {
    start: u64,
    len: u64,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> IdRange<T> {
    /// Returns `len` ids from `start` on; `None` if the type cannot hold `start` or all of them.
    ///
    /// A range has at most 2^64 - 1 ids, so it cannot hold every `u64`.
    pub fn new(start: u64, len: u64) -> Option<Self> {
        let last = start.checked_add(len.saturating_sub(1))?;
        (start >= T::MIN && last <= T::MAX).then_some(Self { start, len, of: PhantomData })
    }

    /// Returns the first id, if there is one.
    pub fn first(&self) -> Option<T> {
        (self.len > 0).then(|| T::from_raw(self.start))
    }

    /// Returns the last id, if there is one.
    pub fn last(&self) -> Option<T> {
        self.len.checked_sub(1).map(|offset| T::from_raw(self.start + offset))
    }

    /// Returns an iterator over the ids, from either end.
    pub fn iter(&self) -> Ids<T> {
        Ids { first: *self, further: Vec::new().into_iter() }
    }
}

impl<T> IdRange<T> {
    /// Returns the raw value of the first id; for an empty range, its position.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns one past the last id: up to 2^64, hence wider than an id.
    pub fn end(&self) -> u128 {
        u128::from(self.start) + u128::from(self.len)
    }

    /// Returns the number of ids.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the range has no ids.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the raw value is one of the ids.
    pub fn contains(&self, raw: u64) -> bool {
        raw.checked_sub(self.start).is_some_and(|offset| offset < self.len)
    }

    /// Returns whether an id is in both ranges.
    pub fn overlaps<U>(&self, other: &IdRange<U>) -> bool {
        let (low, high) = (self.start.max(other.start), self.end().min(other.end()));
        u128::from(low) < high
    }

    /// Splits off and returns the first `n` ids, or all if there are fewer.
    #[must_use = "the ids that were split off are lost if the result is dropped"]
    pub fn take_front(&mut self, n: u64) -> Self {
        let n = n.min(self.len);
        let front = Self { start: self.start, len: n, of: PhantomData };
        self.len -= n;
        if self.len > 0 {
            self.start += n;
        }
        front
    }

    /// Splits off and returns the last id, if there is one.
    fn take_last(&mut self) -> Option<T>
    where
        T: Id,
    {
        let last = self.last();
        self.len = self.len.saturating_sub(1);
        last
    }

    /// Returns the ids from `offset` on; empty if there are none.
    pub(crate) fn skip(mut self, offset: u64) -> Self {
        let _ = self.take_front(offset);
        self
    }

    /// Converts the ids to another type. The caller must check the type's bounds: `from_raw` may panic on an
    /// id outside them, or change it.
    #[must_use]
    pub(crate) fn cast<U>(self) -> IdRange<U> {
        IdRange { start: self.start, len: self.len, of: PhantomData }
    }
}

impl IdRange<u64> {
    /// No ids.
    pub(crate) const EMPTY: Self = Self { start: 0, len: 0, of: PhantomData };
}

impl<T> Clone for IdRange<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for IdRange<T> {}

impl<T> PartialEq for IdRange<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.start, self.len) == (other.start, other.len)
    }
}

impl<T> Eq for IdRange<T> {}

/// Ordered by the first id, then by the length.
impl<T> Ord for IdRange<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.start, self.len).cmp(&(other.start, other.len))
    }
}

impl<T> PartialOrd for IdRange<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Hash for IdRange<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.start, self.len).hash(state);
    }
}

impl<T> fmt::Debug for IdRange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end())
    }
}

impl<T: Id> IntoIterator for IdRange<T> {
    type Item = T;
    type IntoIter = Ids<T>;

    fn into_iter(self) -> Ids<T> {
        self.iter()
    }
}

impl<T: Id> IntoIterator for &IdRange<T> {
    type Item = T;
    type IntoIter = Ids<T>;

    fn into_iter(self) -> Ids<T> {
        self.iter()
    }
}

/// The ids of an [`IdRange`] or of [`Ranges`], in ascending order.
#[derive(Clone, Debug)]
pub struct Ids<T = u64> {
    first: IdRange<T>,
    further: std::vec::IntoIter<IdRange<T>>,
}

impl<T: Id> Iterator for Ids<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(id) = self.first.take_front(1).first() {
                return Some(id);
            }
            self.first = self.further.next()?;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let further = self.further.as_slice().iter().map(IdRange::len);
        let len = further.fold(self.first.len, u64::saturating_add);
        let len = usize::try_from(len).ok();
        (len.unwrap_or(usize::MAX), len)
    }

    fn nth(&mut self, n: usize) -> Option<T> {
        let mut left = n as u64;
        while left > 0 {
            left -= self.first.take_front(left).len();
            if left > 0 {
                self.first = self.further.next()?;
            }
        }
        self.next()
    }
}

impl<T: Id> DoubleEndedIterator for Ids<T> {
    fn next_back(&mut self) -> Option<T> {
        while let Some(last) = self.further.as_mut_slice().last_mut() {
            if let Some(id) = last.take_last() {
                return Some(id);
            }
            self.further.next_back();
        }
        self.first.take_last()
    }
}

impl<T: Id> FusedIterator for Ids<T> {}

/// The length is at most [`usize::MAX`], even if a 32-bit `usize` cannot count all ids.
impl<T: Id> ExactSizeIterator for Ids<T> {
    // The default panics if the size hint has no upper bound, as for long ranges on 32-bit targets.
    fn len(&self) -> usize {
        self.size_hint().0
    }
}

/// The result of `take(n)`: exactly `n` ids in ascending order, in as few ranges as possible. Iterating
/// yields the ids.
///
/// ```
/// # async fn demo(orders: idmill::Allocator<u64>, rows: Vec<String>) -> idmill::Result<()> {
/// for (id, row) in orders.take(10_000).await?.into_iter().zip(rows) { /* insert the row */ }
/// # Ok(()) }
/// ```
#[must_use = "the ids are lost if the ranges are dropped"]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ranges<T = u64>(Vec<IdRange<T>>);

impl<T> Ranges<T> {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds a range, and merges it with the last one if they are adjacent.
    pub(crate) fn push(&mut self, range: IdRange<T>) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last)
                if last.end() == u128::from(range.start) && last.len.checked_add(range.len).is_some() =>
            {
                last.len += range.len;
            }
            _ => self.0.push(range),
        }
    }

    /// Splits off and returns the first `n` ids, or all if there are fewer.
    pub(crate) fn take_front(&mut self, mut n: u64) -> Self {
        let mut front = Self::none();
        let mut emptied = 0;
        for range in &mut self.0 {
            let part = range.take_front(n);
            n -= part.len();
            front.push(part);
            emptied += usize::from(range.is_empty());
            if n == 0 {
                break;
            }
        }
        self.0.drain(..emptied);
        front
    }

    /// Appends ranges.
    pub(crate) fn extend(&mut self, more: Self) {
        more.0.into_iter().for_each(|range| self.push(range));
    }

    /// Removes and returns the last range.
    pub(crate) fn pop(&mut self) -> Option<IdRange<T>> {
        self.0.pop()
    }

    pub(crate) fn cast<U>(self) -> Ranges<U> {
        Ranges(self.0.into_iter().map(IdRange::cast).collect())
    }

    /// Returns the total number of ids; `u64::MAX` for all 2^64 ids of `u64`.
    pub fn len(&self) -> u64 {
        self.0.iter().map(IdRange::len).fold(0, u64::saturating_add)
    }

    /// Returns whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranges, in ascending order.
    pub fn ranges(&self) -> &[IdRange<T>] {
        &self.0
    }
}

impl Ranges {
    /// Returns the id of a reply to a caller that requested one id.
    pub(crate) fn only<T: Id>(&self) -> T {
        let id = self.ranges().first().and_then(IdRange::first);
        T::from_raw(id.expect("the engine answers with the requested number of ids"))
    }
}

impl<T: Id> Ranges<T> {
    /// Returns an iterator over all ids, from either end.
    pub fn iter(&self) -> Ids<T> {
        self.clone().into_iter()
    }
}

impl<T: Id> IntoIterator for &Ranges<T> {
    type Item = T;
    type IntoIter = Ids<T>;

    fn into_iter(self) -> Ids<T> {
        self.iter()
    }
}

impl<T: Id> IntoIterator for Ranges<T> {
    type Item = T;
    type IntoIter = Ids<T>;

    fn into_iter(self) -> Ids<T> {
        Ids { first: IdRange::EMPTY.cast(), further: self.0.into_iter() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    fn any_range() -> impl Strategy<Value = IdRange> {
        let near_edges = prop_oneof![0..200_u64, any::<u64>(), u64::MAX - 200..=u64::MAX];
        (near_edges, 0..300_u64).prop_filter_map("fits in u64", |(start, len)| IdRange::new(start, len))
    }

    #[test]
    fn ranges_of_other_ids_are_not_equal() {
        let range = |start, len| IdRange::<u64>::new(start, len).unwrap();
        assert_eq!(range(1, 2), range(1, 2));
        assert!(range(1, 2) != range(1, 3) && range(1, 2) != range(2, 2));
    }

    proptest! {
        #[test]
        fn splitting_keeps_every_id_once(range in any_range(), n in 0..400_u64) {
            let mut rest = range;
            let front = rest.take_front(n);
            prop_assert_eq!(front.len(), n.min(range.len()));
            let both: Vec<u64> = front.iter().chain(rest.iter()).collect();
            prop_assert_eq!(both, range.iter().collect::<Vec<_>>());
            prop_assert!(!front.overlaps(&rest));
        }

        #[test]
        fn overlap_is_a_shared_id(a in any_range(), b in any_range()) {
            let shared = a.iter().any(|id| b.contains(id));
            prop_assert_eq!(a.overlaps(&b), shared);
            prop_assert_eq!(b.overlaps(&a), shared);
        }

        #[test]
        fn merging_keeps_every_id_in_order(pieces in prop::collection::vec(1..20_u64, 0..10), start in any_range()) {
            let total: u64 = pieces.iter().sum();
            let Some(mut rest) = IdRange::<u64>::new(start.start(), total) else { return Ok(()) };
            let whole = rest;
            let mut ranges = Ranges::none();
            for piece in pieces {
                ranges.push(rest.take_front(piece));
            }
            prop_assert_eq!(ranges.len(), whole.len());
            prop_assert!(ranges.ranges().len() <= 1);
            prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), whole.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn both_halves_of_u64_have_a_length() {
        let mut halves = Ranges::<u64>::none();
        for start in [0, 1 << 63] {
            halves.push(IdRange::new(start, 1 << 63).unwrap());
        }
        assert_eq!((halves.ranges().len(), halves.len()), (2, u64::MAX));
    }

    #[test]
    fn iteration_from_both_ends_returns_each_id_once() {
        let range = IdRange::<u64>::new(u64::MAX - 3, 4).unwrap();
        let mut ids = range.into_iter();
        assert_eq!((ids.next(), ids.next_back()), (Some(u64::MAX - 3), Some(u64::MAX)));
        assert_eq!(
            (ids.len(), ids.next_back(), ids.next_back()),
            (2, Some(u64::MAX - 1), Some(u64::MAX - 2))
        );
        assert_eq!((ids.next(), ids.next_back()), (None, None));
        assert!((&range).into_iter().eq(range.iter()) && range.iter().len() == 4);
    }

    fn any_ranges() -> impl Strategy<Value = Vec<IdRange<u64>>> {
        prop::collection::vec((1..5_u64, 0..4_u64), 0..6).prop_map(|pieces| {
            let mut start = 1;
            let mut range = |(gap, len)| {
                let range = IdRange::new(start + gap, len).expect("it fits");
                start += gap + len;
                range
            };
            pieces.into_iter().map(&mut range).collect()
        })
    }

    proptest! {
        /// `Ranges` has no empty ranges, but an iterator may start within an empty one.
        #[test]
        fn ids_of_several_ranges_are_those_of_each(ranges in any_ranges(), steps in prop::collection::vec(any::<u8>(), 0..30)) {
            let mut model: VecDeque<u64> = ranges.iter().flat_map(|range| range.start()..range.start() + range.len()).collect();
            let mut ids = Ranges(ranges).into_iter();
            for step in steps {
                prop_assert_eq!(ids.len(), model.len());
                match step % 4 {
                    0 => prop_assert_eq!(ids.next_back(), model.pop_back()),
                    1 => {
                        let n = usize::from(step / 16);
                        let rest = model.split_off(n.min(model.len()));
                        model = rest;
                        prop_assert_eq!(ids.nth(n), model.pop_front());
                    }
                    _ => prop_assert_eq!(ids.next(), model.pop_front()),
                }
            }
            prop_assert_eq!(ids.collect::<Vec<_>>(), Vec::from(model));
        }
    }

    #[test]
    fn the_last_id_of_each_type_fits_and_no_more() {
        assert!(IdRange::<u64>::new(u64::MAX, 1).is_some());
        assert!(IdRange::<u64>::new(u64::MAX, 2).is_none());
        assert!(IdRange::<u32>::new(u64::from(u32::MAX), 1).is_some());
        assert!(IdRange::<u32>::new(u64::from(u32::MAX), 2).is_none());
        assert!(IdRange::<std::num::NonZeroI32>::new(0, 1).is_none());
    }

    /// More ids than a 32-bit `usize` can count.
    #[test]
    fn a_long_range_has_a_length() {
        let ids = IdRange::<u64>::new(1, 1 << 40).unwrap().iter();
        assert_eq!(ids.len(), usize::try_from(1_u64 << 40).unwrap_or(usize::MAX));
    }

    #[test]
    fn ids_skip_without_walking() {
        let ids = IdRange::<u64>::new(5, u64::MAX - 5).unwrap();
        assert_eq!(ids.into_iter().nth(1 << 40), Some(5 + (1 << 40)));
    }
}
