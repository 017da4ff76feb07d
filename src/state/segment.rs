//! A range of ids in memory, and the draws from it.
//!
//! The hot path of the crate is [`Segment::draw_noting`]: one `fetch_add` on the segment's cursor, and one
//! branch.
//!
//! # Orderings
//!
//! The cursor is an *offset*, never an id, so that nothing wraps at the end of an id type. A draw that finds
//! it at or beyond `len` gets no id. All accesses to it are `Relaxed`:
//!
//! - *No duplicates* requires only that read-modify-writes of one location are atomic, which they are in any
//!   ordering.
//! - *Growing* requires a draw that happens after another to see a later offset, which coherence of one
//!   location guarantees.
//! - `start`, `len` and `mark` never change; a thread that holds the `Arc` got it through an `ArcSwap`
//!   (release/acquire, see [`stock`](crate::state::stock)) or created it.
//!
//! The watermark's single signal relies on the same atomicity: the offsets `[0, len)` are assigned to draws
//! without overlap, so at most one draw gets the offset `mark`.

use crate::error::ErrorKind;
use crate::range::IdRange;
use crate::sync::{ArcSwapOption, AtomicU64, Ordering};

/// The cursor after [`Segment::seal`]: larger than every length. No offset may reach 2^63: from this cursor
/// on, that takes 2^62 failing draws, which at one per nanosecond is 146 years.
const SEALED: u64 = 1 << 62;

/// The maximum number of ids in one segment. Keeps `cursor + n` below [`SEALED`], unless 2^14 draws of a
/// whole segment race.
pub(crate) const MAX_LEN: u64 = 1 << 48;

/// A cursor without other data on its cache line. In an `Arc` allocation, this field follows the two
/// reference counts (16 bytes), and allocators align the allocation to 16 bytes. So `offset` is at least 8
/// bytes into its cache line, and the 48 bytes after `offset` reach the line's end. Not crossbeam's
/// `CachePadded`: its 128-byte alignment more than doubles an idle sequence's segment and measured no faster,
/// since the data beyond the padding is written once.
#[derive(Debug)]
#[repr(C)]
struct Cursor {
    before: [u64; 7],
    offset: AtomicU64,
    after: [u64; 6],
}

impl Cursor {
    fn new() -> Self {
        Self { before: [0; 7], offset: AtomicU64::new(0), after: [0; 6] }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Segment {
    /// The number of ids requested from this segment so far. Every draw writes it.
    cursor: Cursor,
    start: u64,
    len: u64,
    /// The draw that gets this offset signals low water; `len` or more for no signal.
    mark: u64,
    /// The error of draws from an empty segment; `Empty` for a segment that had ids.
    reason: ErrorKind,
    /// The segment after this one: set once by the actor, and cleared once this segment is no longer current.
    /// So an idle holder of an old segment does not keep all later ones alive.
    next: ArcSwapOption<Segment>,
}

/// The result of drawing one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) id: u64,
    /// Whether this draw crossed the watermark: at most one draw of a segment does.
    pub(crate) low: bool,
}

/// The result of drawing several ids; there may be fewer than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) range: IdRange,
    pub(crate) low: bool,
}

impl Segment {
    /// Creates a segment over `range`. The first draw that leaves fewer than `watermark` ids signals; 0 for
    /// no signal.
    pub(crate) fn new(range: IdRange, watermark: u64) -> Self {
        debug_assert!(range.len() <= MAX_LEN);
        let mark = range.len().saturating_sub(watermark);
        Self::with(range, mark, ErrorKind::Empty)
    }

    /// Creates a segment without ids, with the reason.
    pub(crate) fn empty(reason: ErrorKind) -> Self {
        Self::with(IdRange::EMPTY, 0, reason)
    }

    fn with(range: IdRange, mark: u64, reason: ErrorKind) -> Self {
        Self {
            cursor: Cursor::new(),
            start: range.start(),
            len: range.len(),
            mark,
            reason,
            next: ArcSwapOption::new(None),
        }
    }

    /// Draws one id; `None` if none is left here.
    pub(crate) fn draw(&self) -> Option<Drawn> {
        let mut low = false;
        let id = self.draw_noting(|| low = true)?;
        Some(Drawn { id, low })
    }

    /// Draws one id; `None` if none is left here. The draw that crosses the watermark calls `low`.
    #[inline]
    pub(crate) fn draw_noting(&self, low: impl FnOnce()) -> Option<u64> {
        // Relaxed: see the module's Orderings.
        let offset = self.cursor.offset.fetch_add(1, Ordering::Relaxed);
        // Both operands are negative if the draw meets neither the end nor the watermark, as all three values
        // are below 2^63. One branch instead of two: see benches/README.md.
        let within = offset.wrapping_sub(self.len) & (offset ^ self.mark).wrapping_neg();
        (within.cast_signed().is_negative() || self.got_at_an_edge(offset, low)).then(|| self.start + offset)
    }

    /// Returns whether a draw that met the watermark or the end got an id.
    #[cold]
    #[inline(never)]
    fn got_at_an_edge(&self, offset: u64, low: impl FnOnce()) -> bool {
        let got = offset < self.len;
        if got && offset == self.mark {
            low();
        }
        got
    }

    /// Draws up to `n` ids; fewer, or none, if not enough are left.
    pub(crate) fn take(&self, n: u64) -> Taken {
        let n = n.min(self.len);
        // Do not move the cursor of an empty segment: repeated large draws could otherwise make it wrap.
        // Relaxed: a hint; the fetch_add decides.
        if self.cursor.offset.load(Ordering::Relaxed) >= self.len {
            return Taken { range: IdRange::EMPTY, low: false };
        }
        // Relaxed: see the module's Orderings.
        let offset = self.cursor.offset.fetch_add(n, Ordering::Relaxed);
        self.taken(offset, n)
    }

    /// Draws exactly `n` ids; none if fewer are left.
    pub(crate) fn take_exactly(&self, n: u64) -> Option<Taken> {
        let enough = |offset: u64| offset.checked_add(n).filter(|end| *end <= self.len);
        // Relaxed: see the module's Orderings.
        let offset = self.cursor.offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).ok()?;
        Some(self.taken(offset, n))
    }

    /// Returns the ids of a draw of `n` ids that got this offset.
    fn taken(&self, offset: u64, n: u64) -> Taken {
        let range = self.whole().skip(offset).take_front(n);
        let crossed = offset <= self.mark && self.mark < offset + n;
        Taken { range, low: crossed && self.mark < self.len }
    }

    /// Seals the segment for all holders: no draw that begins after this gets an id. Returns the remaining
    /// ids, which now belong to the caller.
    pub(crate) fn seal(&self) -> IdRange {
        // Relaxed: the swap is atomic with respect to the draws, so each id is either drawn or returned here.
        self.whole().skip(self.cursor.offset.swap(SEALED, Ordering::Relaxed))
    }

    /// Returns how many ids are left: exact at one moment between call and return.
    pub(crate) fn remaining(&self) -> u64 {
        // Relaxed: this only reads a level and claims no ids.
        self.len.saturating_sub(self.cursor.offset.load(Ordering::Relaxed))
    }

    pub(crate) fn reason(&self) -> ErrorKind {
        self.reason
    }

    pub(crate) fn next(&self) -> &ArcSwapOption<Segment> {
        &self.next
    }

    fn whole(&self) -> IdRange {
        IdRange::new(self.start, self.len).expect("a segment is created from a valid range")
    }
}

/// Drops the later segments one after the other: recursion would overflow the stack on a long chain. Not in
/// models: their chains are short, and loom would explore each step of a drop.
#[cfg(not(idmill_loom))]
impl Drop for Segment {
    fn drop(&mut self) {
        let mut next = self.next.swap(None);
        while let Some(segment) = next {
            next = crate::sync::Arc::into_inner(segment).and_then(|segment| segment.next.swap(None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(start: u64, len: u64, watermark: u64) -> Segment {
        Segment::new(IdRange::new(start, len).unwrap(), watermark)
    }

    #[test]
    fn the_last_id_of_u64_is_drawn_and_then_none() {
        let segment = segment(u64::MAX - 1, 2, 0);
        assert_eq!(segment.draw().map(|drawn| drawn.id), Some(u64::MAX - 1));
        assert_eq!(segment.draw().map(|drawn| drawn.id), Some(u64::MAX));
        assert_eq!(segment.draw(), None);
        assert_eq!(segment.take(u64::MAX).range, IdRange::EMPTY);
    }

    #[test]
    fn large_draws_of_a_empty_segment_do_not_bring_it_around() {
        let segment = segment(7, MAX_LEN, 0);
        assert_eq!(segment.take(u64::MAX).range.len(), MAX_LEN);
        for _ in 0..1 << 17 {
            assert!(segment.take(u64::MAX).range.is_empty());
        }
        assert_eq!(segment.draw(), None);
    }

    #[test]
    fn a_long_chain_is_dropped_without_recursion() {
        let first = crate::sync::Arc::new(segment(1, 1, 0));
        let mut last = first.clone();
        for _ in 0..1_000_000 {
            let next = crate::sync::Arc::new(segment(1, 1, 0));
            last.next().store(Some(next.clone()));
            last = next;
        }
        drop(last);
        drop(first);
    }

    #[test]
    fn sealing_returns_what_was_left() {
        let segment = segment(1, 10, 5);
        let _ = segment.take(3);
        assert_eq!(segment.seal(), IdRange::new(4, 7).unwrap());
        assert_eq!((segment.draw(), segment.take(1).range.len(), segment.seal().len()), (None, 0, 0));
    }

    proptest! {
        // Vary the length of the segment: with only one length, mutants of the arithmetic can survive.
        #[test]
        fn draws_tile_the_range_and_signal_once(
            len in 1..200_u64,
            watermark in 0..220_u64,
            sizes in prop::collection::vec(0..30_u64, 1..400),
        ) {
            let segment = segment(u64::MAX - len + 1, len, watermark);
            let (mut expected, mut signals) = (u128::from(u64::MAX - len) + 1, 0);
            for size in sizes {
                let before = segment.remaining();
                let (range, low) = if size == 0 {
                    match segment.draw() {
                        Some(drawn) => (IdRange::new(drawn.id, 1).unwrap(), drawn.low),
                        None => (IdRange::EMPTY, false),
                    }
                } else {
                    let taken = segment.take(size);
                    (taken.range, taken.low)
                };
                prop_assert_eq!(range.len(), size.max(1).min(before));
                if !range.is_empty() {
                    prop_assert_eq!(u128::from(range.start()), expected);
                    expected = range.end();
                }
                signals += u32::from(low);
                let crossed = watermark > 0 && segment.remaining() < watermark;
                prop_assert_eq!(signals, u32::from(crossed), "{} left of {}", segment.remaining(), len);
            }
        }
    }
}
