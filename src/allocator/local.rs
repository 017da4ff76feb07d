//! Each thread's memory of the segments that it last drew from, for callers of `&Allocator`.
//!
//! Loading an `ArcSwap` for every draw costs three to four bare instructions, for its debt slots. A remembered segment
//! needs no revalidation at all: while it has ids it is right to draw from it, whether it is still the
//! published one or not, and revoking seals it. So a draw looks up its sequence's slot and adds.
//!
//! Slots are few and overwritten by whichever sequence maps there next; that costs a reload, never an id.
//! What a slot keeps alive is one segment.

use std::cell::RefCell;

use crate::core::Core;
use crate::error::ErrorKind;
use crate::segment::Segment;
use crate::sync::Arc;

/// A power of two.
const SLOTS: usize = 16;

struct Slot {
    /// The [`Core::key`] it was filled for; never used again, so that a slot cannot be mistaken.
    key: u64,
    segment: Arc<Segment>,
}

thread_local! {
    static REMEMBERED: [RefCell<Option<Slot>>; SLOTS] = const { [const { RefCell::new(None) }; SLOTS] };
}

/// The next id of the segment that this thread remembers, if it remembers one that has any.
#[allow(clippy::inline_always)] // a call costs half of what it does
#[inline(always)]
pub(super) fn draw(core: &Arc<Core>) -> Option<u64> {
    REMEMBERED
        .try_with(|slots| {
            let slot = slots[slot_of(core)].try_borrow().ok()?;
            let slot = slot.as_ref().filter(|slot| slot.key == core.key)?;
            core.draw_here(&slot.segment)
        })
        .ok()
        .flatten()
}

/// The next id of whatever is published, which this thread remembers from now on.
pub(super) fn draw_on(core: &Arc<Core>) -> Result<u64, ErrorKind> {
    let mut segment = core.stock.current();
    let outcome = core.draw(&mut segment);
    let slot = Slot { key: core.key, segment };
    // Refused while the thread is ending: its memory is gone. Nothing is remembered then.
    let _ = REMEMBERED.try_with(|slots| slots[slot_of(core)].replace(Some(slot)));
    outcome
}

// Truncation keeps the low bits, which are what picks the slot.
#[allow(clippy::cast_possible_truncation)]
fn slot_of(core: &Core) -> usize {
    core.key as usize & (SLOTS - 1)
}
