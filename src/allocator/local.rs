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

#[inline]
pub(super) fn draw(core: &Arc<Core>) -> Result<u64, ErrorKind> {
    REMEMBERED
        .try_with(|slots| {
            // Truncation keeps the low bits, which are what picks the slot.
            #[allow(clippy::cast_possible_truncation)]
            let slot = &slots[core.key as usize & (SLOTS - 1)];
            // Taken already only if waking the actor somehow led back here.
            let Ok(mut slot) = slot.try_borrow_mut() else { return unremembered(core) };
            match &mut *slot {
                Some(slot) if slot.key == core.key => core.draw(&mut slot.segment),
                other => remember(other, core),
            }
        })
        // The thread is ending and its memory is gone.
        .unwrap_or_else(|_| unremembered(core))
}

#[cold]
fn remember(slot: &mut Option<Slot>, core: &Arc<Core>) -> Result<u64, ErrorKind> {
    let slot = slot.insert(Slot { key: core.key, segment: core.stock.current() });
    core.draw(&mut slot.segment)
}

#[cold]
fn unremembered(core: &Arc<Core>) -> Result<u64, ErrorKind> {
    core.draw(&mut core.stock.current())
}
