//! The blocks that threads hold of a sequence under [`Order::Thread`](crate::Order::Thread), for `&self`
//! callers: the draws of different threads write to no common cache line.
//!
//! A thread does not cache the address of its block, as [`local`](crate::allocator) caches that of a segment:
//! the two writes that borrow the cache take longer than the loads that lead to the block here. A draw took
//! 6.1 ns with a cache, and takes 4.8 ns.
//!
//! A thread that ends leaves its block to the next thread in its [slot](super::slot), which draws from
//! it first. So short-lived threads waste no ids, and there are no more blocks than threads alive at one
//! time.
//!
//! *Growing*: a thread keeps its slot while it lives, and is the only one that draws from its thread block.
//! Its other ids come from the stock and are larger. After the actor returns ids to the thread, the block
//! [drops](BlockTable::catch_up) its smaller ids, including inherited ones. A thread that is ending no
//! longer uses its block.

use super::slot::ThreadSlot;
use super::thread::ThreadBlock;
use crate::range::IdRange;
use crate::state::stats::Stats;
use crate::state::stock::Stock;
use crate::sync::{CachePadded, OnceLock};

/// Enough for four million threads; further threads draw without a thread block.
const ROWS: usize = 20;

/// Created when its thread first draws.
type Entry = OnceLock<Box<CachePadded<ThreadBlock>>>;

/// The thread blocks by slot.
#[derive(Default)]
pub(crate) struct BlockTable {
    /// Inline: a draw through the pointer of a further row reads one more cache line.
    first: [Entry; ThreadSlot::columns(0)],
    /// Each row is created when the first of its threads draws.
    further: [OnceLock<Box<[Entry]>>; ROWS - 1],
}

impl BlockTable {
    /// Returns the next id of this thread's block, if it has one.
    #[allow(clippy::inline_always)] // a call would cost half as much as the body
    #[inline(always)]
    pub(crate) fn draw(&self, stock: &Stock) -> Option<u64> {
        self.at(ThreadSlot::mine())?.draw(stock)
    }

    /// Returns the next id for this thread: from the block in its slot, or from the ids that `take` returns.
    /// `None` if the thread has no slot or memory is empty.
    pub(crate) fn renew(&self, stock: &Stock, stats: &Stats, take: impl FnOnce() -> IdRange) -> Option<u64> {
        let block = ThreadSlot::take().and_then(|slot| self.make(slot))?;
        block.draw(stock).or_else(|| block.renew(stock, stats, take))
    }

    /// Drops smaller ids of this thread's block, after the thread got `id` from the actor. They may be
    /// inherited, or have been taken by other callers of the thread while this one waited; they must not be
    /// handed out after `id`.
    #[cold]
    pub(crate) fn catch_up(&self, stats: &Stats, id: u64) {
        if let Some(block) = ThreadSlot::take().and_then(|slot| self.at(slot)) {
            block.catch_up(stats, id);
        }
    }

    /// Counts as lost the revoked ids that threads hold; the threads detect the revocation at their next
    /// draw. Returns the number of ids, which may include the one of a concurrent draw.
    #[cold]
    pub(crate) fn give_up(&self, stock: &Stock, stats: &Stats) -> u64 {
        self.iter().map(|block| block.give_up(stock, stats)).sum()
    }

    /// Whether a thread holds ids that were not revoked.
    pub(crate) fn hold_ids(&self, stock: &Stock) -> bool {
        self.iter().any(|block| block.holds_ids(stock))
    }

    fn iter(&self) -> impl Iterator<Item = &CachePadded<ThreadBlock>> {
        let further = self.further.iter().filter_map(OnceLock::get).flatten();
        self.first.iter().chain(further).filter_map(OnceLock::get).map(|block| &**block)
    }

    #[allow(clippy::inline_always)] // see `draw`
    #[inline(always)]
    fn at(&self, slot: ThreadSlot) -> Option<&ThreadBlock> {
        let row = match slot.row.checked_sub(1) {
            None => &self.first[..],
            Some(further) => self.further.get(further)?.get()?,
        };
        Some(row.get(slot.column)?.get()?)
    }

    fn make(&self, slot: ThreadSlot) -> Option<&ThreadBlock> {
        let new = || (0..ThreadSlot::columns(slot.row)).map(|_| Entry::new()).collect();
        let row = match slot.row.checked_sub(1) {
            None => &self.first[..],
            Some(further) => self.further.get(further)?.get_or_init(new),
        };
        Some(row.get(slot.column)?.get_or_init(Box::default))
    }
}
