//! A thread's block of a sequence under [`Order::Thread`](crate::Order::Thread). Other threads can read how
//! much is left of it.
//!
//! # Writers
//!
//! Only the block's own thread writes `next` and `end`: a draw stores `next` without a lock, so a store by
//! another thread could undo it and duplicate an id. A revocation only writes `generation`.
//!
//! All accesses are `Relaxed`. The thread reads its own writes; the next thread in the slot gets them through
//! the lock of the free slots. Other threads only read `next` as a level, for counting.

use super::Block;
use crate::range::IdRange;
use crate::state::stats::Stats;
use crate::state::stock::Stock;
use crate::sync::{AtomicU64, Mutex, Ordering};

#[derive(Debug)]
pub(crate) struct ThreadBlock {
    next: AtomicU64,
    end: AtomicU64,
    generation: AtomicU64,
    /// Held to change more than `next`, by the thread itself or by a revocation.
    changing: Mutex<()>,
}

impl Default for ThreadBlock {
    fn default() -> Self {
        let Block { next, end, generation } = Block::EMPTY;
        Self {
            next: AtomicU64::new(next),
            end: AtomicU64::new(end),
            generation: AtomicU64::new(generation),
            changing: Mutex::new(()),
        }
    }
}

impl ThreadBlock {
    /// Returns the next id of the block. Only its thread may call this.
    #[inline]
    pub(crate) fn draw(&self, stock: &Stock) -> Option<u64> {
        let mut block = self.block();
        let id = block.draw(stock)?;
        self.next.store(block.next, Ordering::Relaxed);
        Some(id)
    }

    /// Takes a new block from memory and draws from it. Only its thread may call this.
    #[cold]
    pub(crate) fn renew(&self, stock: &Stock, stats: &Stats, take: impl FnOnce() -> IdRange) -> Option<u64> {
        self.change(|block| block.renew(stock, stats, take))
    }

    /// Gives up the remaining ids if they come before `id`. Only its thread may call this.
    #[cold]
    pub(crate) fn catch_up(&self, stats: &Stats, id: u64) {
        self.change(|block| block.catch_up(stats, id));
    }

    /// Gives up the remaining ids if they were revoked. Called by the revocation. Returns the number of ids,
    /// which may include the one of a concurrent draw.
    #[cold]
    pub(crate) fn give_up(&self, stock: &Stock, stats: &Stats) -> u64 {
        let _changing = self.changing.lock();
        let mut block = self.block();
        let left = block.give_up(stock, stats);
        self.generation.store(block.generation, Ordering::Relaxed);
        left
    }

    /// Whether the thread of this block holds ids that were not revoked.
    pub(crate) fn holds_ids(&self, stock: &Stock) -> bool {
        self.block().draw(stock).is_some()
    }

    #[inline]
    fn block(&self) -> Block {
        Block {
            next: self.next.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
        }
    }

    /// Only the block's own thread may call this.
    fn change<R>(&self, change: impl FnOnce(&mut Block) -> R) -> R {
        let _changing = self.changing.lock();
        let mut block = self.block();
        let result = change(&mut block);
        self.next.store(block.next, Ordering::Relaxed);
        self.end.store(block.end, Ordering::Relaxed);
        self.generation.store(block.generation, Ordering::Relaxed);
        result
    }
}
