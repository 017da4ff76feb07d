//! A per-thread cache of the segments last drawn from, for callers of `&Allocator`.
//!
//! Loading an `ArcSwap` for every draw costs as much as three to four atomic instructions, because it writes
//! a debt slot. A cached segment needs no revalidation: while it has ids, a draw from it is correct whether
//! or not it is still the published one, and revoking seals it. So a draw only looks up its sequence's slot
//! and does one `fetch_add`.
//!
//! The cache grows with the number of sequences that the thread draws from, up to [`MOST`] slots of 16 bytes.
//! At that size, a new sequence without a free slot in reach overwrites one; this costs a reload, never an
//! id. A slot keeps one segment alive until the cache next grows or the slot is overwritten.

use std::cell::RefCell;

use super::CoreRef;
use crate::error::ErrorKind;
use crate::state::segment::Segment;
use crate::sync::Arc;

/// Initial number of slots. A power of two, as is every later size.
const FIRST: usize = 16;
/// The most slots that one thread has.
const MOST: usize = 4096;
/// A sequence may be cached in this many slots, starting at its own.
const REACH: usize = 8;

struct Slot {
    /// The `Core::key` it was filled for. Keys are never reused, so a slot cannot be mistaken for another
    /// core's.
    key: u64,
    segment: Arc<Segment>,
}

thread_local! {
    static REMEMBERED: RefCell<Memory> = const { RefCell::new(Memory(Vec::new())) };
}

/// Returns the next id of the segment that this thread has cached, if there is one and it has ids.
#[allow(clippy::inline_always)] // a call would cost half as much as the body
#[inline(always)]
pub(super) fn draw(core_ref: &CoreRef) -> Option<u64> {
    REMEMBERED
        .try_with(|memory| {
            let memory = memory.try_borrow().ok()?;
            core_ref.draw_from(memory.first(core_ref.key)?)
        })
        .ok()
        .flatten()
}

/// Returns the next id of the published segment, and caches that segment.
pub(super) fn draw_slow(core_ref: &CoreRef) -> Result<u64, ErrorKind> {
    if let Some(id) = draw_cached(core_ref) {
        return Ok(id);
    }
    let CoreRef { core, shared, .. } = core_ref;
    let mut segment = core.stock.current();
    let outcome = core.draw(&mut segment, &shared.mailbox);
    let slot = Slot { key: core.key, segment };
    // This fails if the cache is gone because the thread is ending, or if the cache is in use. Nothing is
    // cached then.
    let _ = REMEMBERED.try_with(|memory| memory.try_borrow_mut().map(|mut memory| memory.put(slot)));
    outcome
}

/// Like [`draw`], for a sequence whose own slot is taken by another one.
fn draw_cached(core_ref: &CoreRef) -> Option<u64> {
    let further = |memory: &RefCell<Memory>| {
        let memory = memory.try_borrow().ok()?;
        let key = core_ref.key;
        let index = memory.find(key).filter(|index| *index != memory.home(key))?;
        core_ref.draw_from(&memory.0[index].as_ref()?.segment)
    };
    REMEMBERED.try_with(further).ok().flatten()
}

/// Slots by key. A sequence is in its own slot or in one of the next few. Keys are consecutive, so sequences
/// that are opened one after the other each get their own slot.
struct Memory(Vec<Option<Slot>>);

impl Memory {
    // Truncation keeps the low bits, which select the slot.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn home(&self, key: u64) -> usize {
        key as usize & self.0.len().wrapping_sub(1)
    }

    /// Returns the segment in the key's own slot, if the slot belongs to the key.
    #[inline]
    fn first(&self, key: u64) -> Option<&Segment> {
        let slot = self.0.get(self.home(key))?.as_ref()?;
        (slot.key == key).then(|| &*slot.segment)
    }

    fn within_reach(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let (home, len) = (self.home(key), self.0.len());
        (0..REACH.min(len)).map(move |step| (home + step) & (len - 1))
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.within_reach(key).find(|index| self.0[*index].as_ref().is_some_and(|slot| slot.key == key))
    }

    fn put(&mut self, slot: Slot) {
        let place = loop {
            if let Some(index) = self.find(slot.key).or_else(|| self.free(slot.key)) {
                break index;
            }
            if self.0.len() >= MOST {
                break self.home(slot.key);
            }
            self.grow();
        };
        self.0[place] = Some(slot);
    }

    /// Returns a slot within reach that is empty, or whose segment has no other owner.
    fn free(&self, key: u64) -> Option<usize> {
        self.within_reach(key).find(|index| self.0[*index].as_ref().is_none_or(Slot::is_over))
    }

    fn grow(&mut self) {
        let larger = (self.0.len() * 2).max(FIRST);
        let slots = std::mem::take(&mut self.0);
        self.0.resize_with(larger, || None);
        for slot in slots.into_iter().flatten().filter(|slot| !slot.is_over()) {
            // A larger table may still have no free slot for some keys; the next reload adds them again.
            if let Some(index) = self.free(slot.key) {
                self.0[index] = Some(slot);
            }
        }
    }
}

impl Slot {
    /// Returns whether the held segment has no other owner: the sequence has moved on to another segment, or
    /// is gone.
    fn is_over(&self) -> bool {
        Arc::strong_count(&self.segment) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(key: u64, segments: &mut Vec<Arc<Segment>>) -> Slot {
        let segment = Arc::new(Segment::empty(ErrorKind::Empty));
        segments.push(segment.clone());
        Slot { key, segment }
    }

    #[test]
    fn thousand_sequences_opened_in_turn_each_keep_a_slot() {
        let (mut memory, mut segments) = (Memory(Vec::new()), Vec::new());
        for key in 5_000..6_000 {
            memory.put(slot(key, &mut segments));
        }
        assert!((5_000..6_000).all(|key| memory.first(key).is_some()));
        assert_eq!(memory.0.len(), 1024);
    }

    #[test]
    fn keys_that_lie_unluckily_are_within_reach() {
        let (mut memory, mut segments) = (Memory(Vec::new()), Vec::new());
        let keys = || (0..500).map(|n| 7 + n * 64);
        keys().for_each(|key| memory.put(slot(key, &mut segments)));
        assert!(keys().all(|key| memory.find(key).is_some()));
    }

    #[test]
    fn slots_are_bounded_and_ended_ones_are_removed() {
        let (mut memory, mut segments) = (Memory(Vec::new()), Vec::new());
        for key in 0..100_000 {
            memory.put(slot(key, &mut segments));
            assert!(memory.first(key).is_some());
        }
        assert_eq!(memory.0.len(), MOST);
        segments.clear();
        memory.grow();
        assert_eq!(memory.0.iter().flatten().count(), 0);
    }
}
