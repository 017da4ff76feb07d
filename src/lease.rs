//! A block of ids that one thread took for itself: a draw from it is a plain increment.
//!
//! Ids in a block lie outside any segment, so revoking cannot seal them. Each draw therefore checks the stock's
//! generation, which was read *before* the block was taken: see [`Stock::generation`].

use crate::core::Core;
use crate::error::ErrorKind;
use crate::range::Range;
use crate::stock::Stock;
use crate::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    next: u64,
    left: u64,
    generation: u64,
}

impl Block {
    pub(crate) const EMPTY: Self = Self { next: 0, left: 0, generation: 0 };

    fn new(range: Range, generation: u64) -> Self {
        Self { next: range.start(), left: range.len(), generation }
    }

    /// The next id, if there is one that was not revoked.
    #[inline]
    pub(crate) fn draw(&mut self, stock: &Stock) -> Option<u64> {
        if self.left == 0 || !stock.stands(self.generation) {
            return None;
        }
        let id = self.next;
        self.left -= 1;
        // Past the last id of `u64` there is no next, and nothing left either.
        self.next = id.wrapping_add(1);
        Some(id)
    }

    /// Takes a new block of up to `size` ids from memory and draws from it.
    #[cold]
    pub(crate) fn renew(&mut self, core: &Arc<Core>, size: u64) -> Result<u64, ErrorKind> {
        self.abandon(core);
        let generation = core.stock.generation();
        *self = Self::new(core.take_some(size)?, generation);
        // Revoked in this very moment: the next attempt takes from what was published since, or says that it is dry.
        self.draw(&core.stock).map_or_else(|| self.renew(core, size), Ok)
    }

    /// Gives up what is left if it comes before `id`.
    #[cold]
    pub(crate) fn catch_up(&mut self, core: &Core, id: u64) {
        if self.next < id {
            self.abandon(core);
        }
    }

    /// Gives up what is left, as a gap.
    pub(crate) fn abandon(&mut self, core: &Core) {
        core.stats.gap_dropped(std::mem::take(&mut self.left));
    }
}
