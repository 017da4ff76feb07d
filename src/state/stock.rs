//! The published segments of one sequence: the current one, and the segments after it.
//!
//! ```text
//!   current ──► segment ──next──► segment        (usually one prefetched segment; more with small steps)
//! ```
//!
//! Any caller that finds `current` empty moves it on to `next` with a compare-and-swap. So no caller waits
//! for the actor to be scheduled if the next segment is already there. Only the actor adds segments, at the
//! tail. If no segment has ids left, it replaces `current` instead: otherwise the chain of an exhausted
//! sequence would grow with each probe.
//!
//! # Orderings
//!
//! `ArcSwap` stores with release and loads with acquire. Segments need no other synchronisation: the actor
//! builds a segment, then links it (release); a caller that loads the link or `current` (acquire) sees the
//! complete segment. `compare_and_swap` on `current` does both, so a caller that loads a promoted segment
//! sees it completely too.
//!
//! *Growing across segments*: `current` moves on from a segment only after a draw, or the actor, found it
//! empty. Every draw from a later segment happens after that observation, and so does everything that happens
//! after such a draw, in any thread. By coherence of the cursor, the earlier segment is empty from then on,
//! even through a stale `Arc`.
//!
//! *No ABA*: the caller of a compare-and-swap holds the `Arc` it expects, so its address is not reused.
//!
//! *Revoking* stores an empty segment and seals the replaced ones, so that it also affects threads that still
//! hold them. The `generation`, for blocks that hold ids outside any segment, is incremented after that.

use crate::error::ErrorKind;
use crate::range::{IdRange, Ranges};
use crate::state::fork::Process;
use crate::state::segment::{Drawn, Segment, Taken};
use crate::sync::{Arc, ArcSwap, AtomicU64, Mutex, Ordering};

/// The order of the fields matters: see [`Core`](crate::state::core::Core).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stock {
    /// Number of revocations.
    generation: AtomicU64,
    current: ArcSwap<Segment>,
    /// The segments from the current one (or one that was drawn empty since the last update) to the last.
    /// Locked to add a segment, to revoke and to read the level; never by a draw of one id.
    chain: Mutex<Chain>,
    /// The process that hands out the ids.
    process: Process,
}

impl Stock {
    pub(crate) fn new() -> Self {
        let current = ArcSwap::new(Arc::new(Segment::empty(ErrorKind::Empty)));
        let (chain, generation) = (Mutex::new(Chain::default()), AtomicU64::new(0));
        Self { current, chain, generation, process: Process::current() }
    }

    /// Returns the segment to draw from.
    pub(crate) fn current(&self) -> Arc<Segment> {
        self.current.load_full()
    }

    /// Draws one id, from `segment` or the first one after it that has ids. On failure, `segment` is the
    /// current one, and the error is the reason why it has no ids.
    pub(crate) fn draw(&self, segment: &mut Arc<Segment>) -> Result<Drawn, ErrorKind> {
        loop {
            if let Some(drawn) = segment.draw() {
                return Ok(drawn);
            }
            *segment = self.advance(segment)?;
        }
    }

    /// Draws `n` ids and passes each range to `each`; none if memory has fewer. Only concurrent draws from
    /// several segments can leave it with a part of the ids. The error contains the number of missing ids and
    /// the reason.
    pub(crate) fn take(&self, n: u64, mut each: impl FnMut(Taken)) -> Result<(), (u64, ErrorKind)> {
        let mut missing = n;
        let mut segment = self.current();
        if let Some(taken) = segment.take_exactly(n) {
            each(taken);
            return Ok(());
        }
        self.must_hold(n)?;
        loop {
            let taken = segment.take(missing);
            missing -= taken.range.len();
            each(taken);
            if missing == 0 {
                return Ok(());
            }
            segment = self.advance(&segment).map_err(|reason| (missing, reason))?;
        }
    }

    /// Fails if memory has fewer than `n` ids: smaller draws can still get them.
    fn must_hold(&self, n: u64) -> Result<(), (u64, ErrorKind)> {
        if self.is_forked() {
            self.disown();
            return Err((n, ErrorKind::Closed));
        }
        let chain = self.chain.lock();
        if chain.remaining() >= n {
            return Ok(());
        }
        Err((n, chain.tail.as_ref().map_or(ErrorKind::Empty, |tail| tail.reason())))
    }

    /// Returns the segment after an empty one, and promotes it if necessary; the error is the reason why
    /// there is none.
    pub(crate) fn advance(&self, empty: &Arc<Segment>) -> Result<Arc<Segment>, ErrorKind> {
        if let Some(next) = empty.next().load_full() {
            self.current.compare_and_swap(empty, next);
            // `current` has moved on, by this swap or another, and never points to `empty` again.
            empty.next().store(None);
        }
        let current = self.current();
        if Arc::ptr_eq(&current, empty) {
            Err(empty.reason())
        } else if self.is_forked() {
            self.disown();
            Err(ErrorKind::Closed)
        } else {
            Ok(current)
        }
    }

    /// Whether this is a fork of the process that hands out these ids.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.is_another()
    }

    /// Ends the stock in a forked process, whose parent hands out these ids. Never waits for the lock: the
    /// thread that holds it was not copied.
    #[cold]
    pub(crate) fn disown(&self) {
        self.current.store(Arc::new(Segment::empty(ErrorKind::Closed)));
        if let Some(mut chain) = self.chain.try_lock() {
            for segment in std::mem::take(&mut *chain).iter() {
                let _the_parents = segment.seal();
            }
        }
        // Release, and after the seals: as in `revoke`.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of revocations. Read it *before* taking ids or reserving a range: ids held under an
    /// earlier generation are void.
    pub(crate) fn generation(&self) -> u64 {
        // Acquire: pairs with the Release in `revoke`. A thread that reads the new generation sees the old
        // segments sealed.
        self.generation.load(Ordering::Acquire)
    }

    /// Whether `generation` is current. A block checks this before each id; it costs one load.
    #[inline]
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        // Relaxed: a draw that happens after `revoke` returned sees the new generation by coherence.
        self.generation.load(Ordering::Relaxed) == generation
    }

    /// Appends a range. Returns `false` if the stock was revoked since `generation`: the ids are then a gap.
    /// `count` must count the ids: it runs before [`still`](Self::still) can read the level again.
    pub(crate) fn publish(
        &self,
        range: IdRange,
        watermark: u64,
        generation: u64,
        count: impl FnOnce(u64),
    ) -> bool {
        self.append(Segment::new(range, watermark), generation, || count(range.len()))
    }

    /// Appends the reason why no ids follow: permanently, or (`Empty`) for now.
    pub(crate) fn finish(&self, reason: ErrorKind, generation: u64) -> bool {
        self.append(Segment::empty(reason), generation, || ())
    }

    fn append(&self, segment: Segment, generation: u64, count: impl FnOnce()) -> bool {
        let segment = Arc::new(segment);
        let mut chain = self.chain.lock();
        if self.generation() != generation {
            return false;
        }
        count();
        match &chain.tail {
            Some(tail) if chain.has_ids() => tail.next().store(Some(segment.clone())),
            _ => self.replace(segment.clone()),
        }
        chain.push(segment);
        true
    }

    /// Makes `segment` the current one. No earlier segment has ids. Clears the links between the earlier
    /// segments, so that an idle holder of one of them does not keep all later ones alive.
    fn replace(&self, segment: Arc<Segment>) {
        let mut earlier = self.current.swap(segment);
        while let Some(next) = earlier.next().swap(None) {
            earlier = next;
        }
    }

    /// Revokes all ids in memory. `reason` is the error of draws until more ids are published. Returns the
    /// revoked ids, oldest first. `count` must count them: it runs before [`still`](Self::still) can read the
    /// level again, because uncounted ids would be counted as drawn. After this returns, no new draw gets an
    /// id that was published before the call.
    pub(crate) fn revoke(&self, reason: ErrorKind, count: impl FnOnce(&Ranges)) -> Ranges {
        if self.is_forked() {
            self.disown();
            return Ranges::none();
        }
        let mut chain = self.chain.lock();
        // Closed is permanent, even if a later revocation passes another reason.
        let reason = if self.current().reason() == ErrorKind::Closed { ErrorKind::Closed } else { reason };
        let lost = self.seal_all(&mut chain, reason);
        // Increment after the seals, with Release, which pairs with the Acquire in `generation`. A thread
        // that reads the new generation finds the old segments sealed, so it takes no ids from them under
        // that generation.
        self.generation.fetch_add(1, Ordering::Release);
        count(&lost);
        lost
    }

    /// Takes all ids out of memory, for waiting callers. They are larger than all drawn ids, and no larger
    /// ids follow them: they can be published again. `count` must count them, as in [`revoke`](Self::revoke).
    pub(crate) fn drain(&self, count: impl FnOnce(u64)) -> Ranges {
        if self.is_forked() {
            return Ranges::none();
        }
        let mut chain = self.chain.lock();
        if !chain.has_ids() {
            return Ranges::none();
        }
        let ids = self.seal_all(&mut chain, ErrorKind::Empty);
        count(ids.len());
        ids
    }

    /// Takes the ids of all segments, oldest first. Draws then fail with `reason` until more ids are
    /// published.
    fn seal_all(&self, chain: &mut Chain, reason: ErrorKind) -> Ranges {
        // Before the seals: a draw that finds the first segment sealed must not move on to the next one,
        // whose ids are larger than those taken here.
        self.current.store(Arc::new(Segment::empty(reason)));
        let mut ids = Ranges::none();
        std::mem::take(chain).iter().for_each(|segment| ids.push(segment.seal()));
        ids
    }

    /// Whether memory has at least `n` ids now.
    pub(crate) fn has(&self, n: u64) -> bool {
        self.current().remaining() >= n || self.remaining() >= n
    }

    /// Returns the reason why no more ids follow; `None` if memory has ids or more may follow.
    pub(crate) fn ended(&self) -> Option<ErrorKind> {
        if self.is_forked() {
            return Some(ErrorKind::Closed);
        }
        let chain = self.chain.lock();
        let reason = chain.tail.as_ref().map_or_else(|| self.current().reason(), |tail| tail.reason());
        (reason != ErrorKind::Empty && chain.remaining() == 0).then_some(reason)
    }

    /// Returns the number of ids in memory.
    pub(crate) fn remaining(&self) -> u64 {
        self.still(|remaining| remaining)
    }

    /// Calls `look` with the number of ids in memory, while none are added or revoked. In a fork the number
    /// is 0, since the ids belong to the parent.
    pub(crate) fn still<T>(&self, look: impl FnOnce(u64) -> T) -> T {
        if self.is_forked() {
            return look(0);
        }
        let chain = self.chain.lock();
        look(chain.remaining())
    }
}

/// The segments that may have ids, oldest first. Usually one, which needs no further allocation.
#[derive(Debug, Default)]
struct Chain {
    earlier: Option<Box<Earlier>>,
    tail: Option<Arc<Segment>>,
}

/// The segments before the tail that may have ids; never empty.
#[derive(Debug)]
struct Earlier(Vec<Arc<Segment>>);

impl Chain {
    fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.earlier.iter().flat_map(|earlier| &earlier.0).chain(&self.tail)
    }

    fn has_ids(&self) -> bool {
        self.iter().any(|segment| segment.remaining() > 0)
    }

    fn remaining(&self) -> u64 {
        self.iter().map(|segment| segment.remaining()).sum()
    }

    /// Appends a segment, and removes the ones that were drawn empty.
    fn push(&mut self, segment: Arc<Segment>) {
        let mut earlier = self.earlier.take().map_or_else(Vec::new, |earlier| earlier.0);
        earlier.extend(self.tail.replace(segment));
        earlier.retain(|segment| segment.remaining() > 0);
        self.earlier = (!earlier.is_empty()).then(|| Box::new(Earlier(earlier)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(ranges: &[(u64, u64)]) -> Stock {
        let stock = Stock::new();
        for (start, len) in ranges {
            assert!(stock.publish(IdRange::new(*start, *len).unwrap(), 0, 0, |_| ()));
        }
        stock
    }

    #[test]
    fn a_forked_process_gets_no_id_of_the_next_segment() {
        let mut stock = published(&[(1, 2), (3, 2)]);
        let mut segment = stock.current();
        assert_eq!(stock.draw(&mut segment).map(|drawn| drawn.id), Ok(1));
        stock.process = Process::another();
        // Draws do not detect the fork until the current segment is empty.
        assert_eq!(stock.draw(&mut segment).map(|drawn| drawn.id), Ok(2));
        assert_eq!(stock.draw(&mut segment), Err(ErrorKind::Closed));
        assert_eq!(
            (stock.current().reason(), stock.remaining(), stock.is_current(0)),
            (ErrorKind::Closed, 0, false)
        );
    }

    #[test]
    fn ids_of_all_segments_count_as_in_memory() {
        let stock = published(&[(1, 2), (3, 2)]);
        assert!(stock.has(2) && stock.has(4) && !stock.has(5));
    }

    #[test]
    fn answers_without_draws_keep_one_segment() {
        let stock = published(&[(1, 1)]);
        let mut held = stock.current();
        assert!(stock.draw(&mut held).is_ok());
        let first = Arc::downgrade(&stock.current());
        for _ in 0..3 {
            // The answers of a probe of an exhausted sequence: it may have ids again, and it has none.
            assert!(stock.finish(ErrorKind::Empty, 0) && stock.finish(ErrorKind::Exhausted, 0));
        }
        assert!(stock.chain.lock().earlier.is_none());
        // Only `held` keeps the first segment alive, and it keeps no other one.
        assert_eq!((first.strong_count(), held.next().load_full().is_none()), (1, true));
        assert_eq!(stock.draw(&mut held), Err(ErrorKind::Exhausted));
        assert!(stock.publish(IdRange::new(2, 1).unwrap(), 0, 0, |_| ()));
        assert_eq!(stock.draw(&mut held).map(|drawn| drawn.id), Ok(2));
    }

    #[test]
    fn revoked_ids_are_counted_before_the_lock_is_released() {
        let stock = published(&[(1, 2), (3, 2)]);
        let mut counted = 0;
        let lost = stock.revoke(ErrorKind::Empty, |lost| {
            assert!(stock.chain.try_lock().is_none());
            counted = lost.len();
        });
        assert_eq!((lost.len(), counted, stock.remaining()), (4, 4, 0));
    }

    #[test]
    fn a_forked_process_waits_for_no_lock() {
        let mut stock = published(&[(1, 1), (2, 1)]);
        stock.process = Process::another();
        let _held = stock.chain.lock();
        let mut segment = stock.current();
        assert_eq!((stock.remaining(), stock.ended()), (0, Some(ErrorKind::Closed)));
        assert!(!stock.has(2));
        assert_eq!(stock.take(2, |_| ()), Err((2, ErrorKind::Closed)));
        assert_eq!(stock.draw(&mut segment).map(|drawn| drawn.id), Ok(1));
        assert_eq!(stock.draw(&mut segment), Err(ErrorKind::Closed));
    }
}
