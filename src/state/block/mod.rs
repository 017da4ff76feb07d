//! A block of ids that one thread holds: a draw from it is a plain increment. Under
//! [`Order::Thread`](crate::Order::Thread), each [`Handle`](crate::Handle) has one, and each [`thread`], in a
//! `table` by the number of the thread, its `slot`.
//!
//! Ids in a block are outside any segment, so revoking cannot seal them. Each draw therefore checks the
//! stock's generation, which was read *before* the block was taken: see [`Stock::generation`].

#[cfg(not(idmill_loom))]
mod slot;
#[cfg(not(idmill_loom))]
pub(crate) mod table;
pub(crate) mod thread;

use crate::range::IdRange;
use crate::state::stats::Stats;
use crate::state::stock::Stock;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) next: u64,
    /// One past the last id, which wraps to 0 after `u64::MAX`: never compare it with `<`.
    pub(crate) end: u64,
    pub(crate) generation: u64,
}

/// The generation of a block that was given up; no stock has it.
const GIVEN_UP: u64 = u64::MAX;

impl Block {
    pub(crate) const EMPTY: Self = Self { next: 0, end: 0, generation: 0 };

    fn new(range: IdRange, generation: u64) -> Self {
        Self { next: range.start(), end: range.start().wrapping_add(range.len()), generation }
    }

    /// Returns the next id, if there is one that was not revoked.
    #[inline]
    pub(crate) fn draw(&mut self, stock: &Stock) -> Option<u64> {
        let id = self.next;
        if id == self.end || !stock.is_current(self.generation) {
            return None;
        }
        self.next = id.wrapping_add(1);
        Some(id)
    }

    /// Takes a new block from memory, and draws from it. Revoked ids that are left in the old block become a
    /// gap. `None` if memory is empty.
    #[inline]
    pub(crate) fn renew(
        &mut self,
        stock: &Stock,
        stats: &Stats,
        take: impl FnOnce() -> IdRange,
    ) -> Option<u64> {
        self.abandon(stats);
        let generation = stock.generation();
        *self = Self::new(take(), generation);
        self.draw(stock)
    }

    /// Gives up the remaining ids if they come before `id`.
    #[cold]
    pub(crate) fn catch_up(&mut self, stats: &Stats, id: u64) {
        if self.next < id {
            self.abandon(stats);
            *self = Self::EMPTY;
        }
    }

    /// Gives up the remaining ids if they were revoked. Called by other threads. Returns the number of ids.
    #[cold]
    pub(crate) fn give_up(&mut self, stock: &Stock, stats: &Stats) -> u64 {
        if stock.is_current(self.generation) {
            return 0;
        }
        let left = self.abandon(stats);
        // Keep `next` and `end`: the owning thread may be in the middle of a draw, which writes `next`.
        self.generation = GIVEN_UP;
        left
    }

    /// Counts the remaining ids as a gap. Returns the number of ids.
    #[inline]
    pub(crate) fn abandon(&self, stats: &Stats) -> u64 {
        let left = self.end.wrapping_sub(self.next);
        if left == 0 || self.generation == GIVEN_UP {
            return 0;
        }
        stats.gap_dropped(left);
        left
    }
}
