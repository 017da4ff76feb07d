//! The published segments of one sequence: the one being drawn from, and what comes after it.
//!
//! ```text
//!   current ──► segment ──next──► segment        (usually one prefetched segment; more with small steps)
//! ```
//!
//! Any caller that finds `current` dry moves it on to `next` with a compare-and-swap; nobody waits for the
//! actor to be scheduled when the next segment is already there. Only the actor adds segments, at the tail.
//!
//! # Orderings
//!
//! `ArcSwap` releases what is stored and acquires what is loaded, and that is the one synchronisation here:
//! the actor builds a segment, then links it (release); a caller that loads the link or `current` (acquire)
//! sees the segment whole. `compare_and_swap` on `current` does both, which carries a segment on from the one
//! who promoted it to those who find it promoted.
//!
//! *Growing across segments*: `current` moves on from a segment only after some draw found it dry. Whoever
//! draws from the later segment happens after that observation, and so does everybody after them; the
//! cursor's coherence then shows them the earlier segment dry as well, whatever stale `Arc` they hold.
//!
//! *No ABA*: a compare-and-swap is made by somebody who holds the `Arc` it expects, so its address is not
//! reused.
//!
//! *Revoking* stores an empty segment and seals those it replaced, so that it reaches threads that still hold
//! them. The `generation`, for leases that hold ids outside any segment, moves after that.

use crate::error::ErrorKind;
use crate::range::{IdRange, Ranges};
use crate::sequence::process::Process;
use crate::sequence::segment::{Drawn, Segment, Taken};
use crate::sync::{Arc, ArcSwap, AtomicU64, Mutex, Ordering};

/// In this order: a draw reads the generation alone, next to what it reads of the sequence.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stock {
    /// How often everything in memory was revoked.
    generation: AtomicU64,
    current: ArcSwap<Segment>,
    /// From the current segment (or one that was drawn dry since the actor last looked) to the last one.
    /// Locked by the actor when it adds one and by whoever revokes or asks for the level; never by a draw.
    chain: Mutex<Chain>,
    /// Where the ids are handed out.
    process: Process,
}

impl Stock {
    pub(crate) fn new() -> Self {
        let current = ArcSwap::new(Arc::new(Segment::empty(ErrorKind::Dry)));
        let (chain, generation) = (Mutex::new(Chain::default()), AtomicU64::new(0));
        Self { current, chain, generation, process: Process::current() }
    }

    /// The segment to draw from.
    pub(crate) fn current(&self) -> Arc<Segment> {
        self.current.load_full()
    }

    /// Draws one id, from `segment` or the first after it that has one. On failure `segment` is the one that
    /// is current, and why it has none is the error.
    pub(crate) fn draw(&self, segment: &mut Arc<Segment>) -> Result<Drawn, ErrorKind> {
        loop {
            if let Some(drawn) = segment.draw() {
                return Ok(drawn);
            }
            *segment = self.advance(segment)?;
        }
    }

    /// Draws `n` ids or, where the segments in memory end, as many as they have; hands each piece to `each`.
    /// What it could not get, and why, is the error.
    pub(crate) fn take(&self, n: u64, mut each: impl FnMut(Taken)) -> Result<(), (u64, ErrorKind)> {
        let mut missing = n;
        let mut segment = self.current();
        if segment.remaining() < n {
            self.holds_or_grows(n)?;
        }
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

    /// Refuses `n` ids where the sequence has fewer and ends, so that the last ones stay for those who want
    /// less.
    fn holds_or_grows(&self, n: u64) -> Result<(), (u64, ErrorKind)> {
        if self.is_forked() {
            self.disown();
            return Err((n, ErrorKind::Closed));
        }
        let chain = self.chain.lock();
        match &chain.tail {
            Some(tail) if tail.is_empty() && chain.remaining() < n => Err((n, tail.reason())),
            _ => Ok(()),
        }
    }

    /// The segment after a dry one, promoting it where that was not done yet; why there is none otherwise.
    pub(crate) fn advance(&self, dry: &Arc<Segment>) -> Result<Arc<Segment>, ErrorKind> {
        if let Some(next) = dry.next().load_full() {
            self.current.compare_and_swap(dry, next);
            // Whether this swap moved `current` on or another had, it has left `dry` for good.
            dry.next().store(None);
        }
        let current = self.current();
        if Arc::ptr_eq(&current, dry) {
            Err(dry.reason())
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

    /// Ends it in a forked process, whose parent hands out these ids. Waits for no lock: the thread that held
    /// it was not copied.
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

    /// Counts revocations. Read it *before* taking ids or reserving a range: whatever is held under a
    /// generation that has passed is void.
    pub(crate) fn generation(&self) -> u64 {
        // Acquire: pairs with the Release in `revoke`. Who reads the new generation finds the old segments
        // sealed.
        self.generation.load(Ordering::Acquire)
    }

    /// Whether `generation` still stands: the check of a lease before each id, as cheap as a load gets.
    #[inline]
    pub(crate) fn stands(&self, generation: u64) -> bool {
        // Relaxed: a draw that happens after `revoke` returned sees its new value by coherence.
        self.generation.load(Ordering::Relaxed) == generation
    }

    /// Adds a range behind what is there. Refused, with its ids as a gap, if the stock was revoked since
    /// `generation`.
    pub(crate) fn publish(&self, range: IdRange, watermark: u64, generation: u64) -> bool {
        self.append(Segment::new(range, watermark), generation)
    }

    /// Says why there is nothing after what is there: for good, or (`Dry`) for now.
    pub(crate) fn finish(&self, reason: ErrorKind, generation: u64) -> bool {
        self.append(Segment::empty(reason), generation)
    }

    fn append(&self, segment: Segment, generation: u64) -> bool {
        let segment = Arc::new(segment);
        let mut chain = self.chain.lock();
        if self.generation() != generation {
            return false;
        }
        match &chain.tail {
            Some(tail) => tail.next().store(Some(segment.clone())),
            // Nothing was published since the start or the last revocation: `current` is the empty segment of
            // that.
            None => self.current.store(segment.clone()),
        }
        chain.push(segment);
        true
    }

    /// Takes everything in memory away from everybody who holds it; `reason` is what callers hear until there
    /// is more. Returns the ids that costs, oldest first, which are to be counted by `count`: before anybody
    /// [looks](Self::still) again, to whom they would seem drawn. When it returns, no draw that begins gets
    /// an id published before.
    pub(crate) fn revoke(&self, reason: ErrorKind, count: impl FnOnce(&Ranges)) -> Ranges {
        if self.is_forked() {
            self.disown();
            return Ranges::none();
        }
        let mut chain = self.chain.lock();
        // Closed is for good, whoever revokes after that.
        let reason = if self.current().reason() == ErrorKind::Closed { ErrorKind::Closed } else { reason };
        self.current.store(Arc::new(Segment::empty(reason)));
        let mut lost = Ranges::none();
        std::mem::take(&mut *chain).iter().for_each(|segment| lost.push(segment.seal()));
        // Release, and after the seals: pairs with `generation`, so that ids taken before a seal are never
        // held under the new generation.
        self.generation.fetch_add(1, Ordering::Release);
        count(&lost);
        lost
    }

    /// Whether so many ids are in memory now.
    pub(crate) fn has(&self, n: u64) -> bool {
        self.current().remaining() >= n || self.remaining() >= n
    }

    /// Why no more ids come, if memory holds none and that is why.
    pub(crate) fn ended(&self) -> Option<ErrorKind> {
        if self.is_forked() {
            return Some(ErrorKind::Closed);
        }
        let chain = self.chain.lock();
        let reason = chain.tail.as_ref().map_or_else(|| self.current().reason(), |tail| tail.reason());
        (reason != ErrorKind::Dry && chain.remaining() == 0).then_some(reason)
    }

    /// How many ids are in memory.
    pub(crate) fn remaining(&self) -> u64 {
        self.still(|remaining| remaining)
    }

    /// Looks at how many that are, while nothing is added or revoked. None are, in a fork: they are its parent's.
    pub(crate) fn still<T>(&self, look: impl FnOnce(u64) -> T) -> T {
        if self.is_forked() {
            return look(0);
        }
        let chain = self.chain.lock();
        look(chain.remaining())
    }
}

/// The segments that may have ids, oldest first. Mostly one, which then takes no memory of its own.
#[derive(Debug, Default)]
struct Chain {
    earlier: Option<Box<Earlier>>,
    tail: Option<Arc<Segment>>,
}

/// Those before the last one that were not seen dry: at least one.
#[derive(Debug)]
struct Earlier(Vec<Arc<Segment>>);

impl Chain {
    fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.earlier.iter().flat_map(|earlier| &earlier.0).chain(&self.tail)
    }

    fn remaining(&self) -> u64 {
        self.iter().map(|segment| segment.remaining()).sum()
    }

    /// Adds a segment, and forgets those that were drawn dry.
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
            assert!(stock.publish(IdRange::new(*start, *len).unwrap(), 0, 0));
        }
        stock
    }

    #[test]
    fn a_forked_process_gets_no_id_of_the_next_segment() {
        let mut stock = published(&[(1, 2), (3, 2)]);
        let mut segment = stock.current();
        assert_eq!(stock.draw(&mut segment).map(|drawn| drawn.id), Ok(1));
        stock.process = Process::another();
        // What no draw can notice: the rest of the range in memory.
        assert_eq!(stock.draw(&mut segment).map(|drawn| drawn.id), Ok(2));
        assert_eq!(stock.draw(&mut segment), Err(ErrorKind::Closed));
        assert_eq!(
            (stock.current().reason(), stock.remaining(), stock.stands(0)),
            (ErrorKind::Closed, 0, false)
        );
    }

    #[test]
    fn what_is_revoked_is_counted_before_anybody_can_look() {
        let stock = published(&[(1, 2), (3, 2)]);
        let mut counted = 0;
        let lost = stock.revoke(ErrorKind::Dry, |lost| {
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
