//! What each thread holds for itself of a sequence under [`Order::Thread`](crate::Order::Thread), for plain `&self`
//! callers: a block, so that draws of different threads touch no common cache line.
//!
//! A thread that ends leaves its block to the next one that gets its place, so that short-lived threads waste nothing; and the
//! number of blocks is that of the threads alive at once.

use std::cell::Cell;
use std::fmt;

use thread_local::ThreadLocal;

use crate::core::Core;
use crate::error::ErrorKind;
use crate::lease::Block;
use crate::sync::{Arc, CachePadded};

#[derive(Default)]
pub(crate) struct Stripes(ThreadLocal<CachePadded<Cell<Block>>>);

impl Stripes {
    /// The next id of this thread's block, if it has one.
    #[allow(clippy::inline_always)] // a call costs half of what it does
    #[inline(always)]
    pub(crate) fn draw(&self, core: &Core) -> Option<u64> {
        let cell = self.0.get()?;
        let mut block = cell.get();
        let id = block.draw(&core.stock)?;
        cell.set(block);
        Some(id)
    }

    /// The next id of a new block for this thread.
    pub(crate) fn draw_on(&self, core: &Arc<Core>) -> Result<u64, ErrorKind> {
        let cell = self.0.get_or(|| CachePadded::new(Cell::new(Block::EMPTY)));
        let (mut block, mut segment) = (cell.get(), core.stock.current());
        let id = block.renew(core, &mut segment, core.settings.lease);
        cell.set(block);
        // Without a block, this finds out why there is none, or an id that has come meanwhile.
        id.map_or_else(|| core.draw(&mut segment), Ok)
    }

    /// A caller of this thread got `id` from the actor, after it had to wait. Whatever other callers of the thread
    /// have put into its block meanwhile must not come after that.
    #[cold]
    pub(crate) fn catch_up(&self, core: &Core, id: u64) {
        if let Some(cell) = self.0.get() {
            let mut block = cell.get();
            block.catch_up(core, id);
            cell.set(block);
        }
    }
}

impl fmt::Debug for Stripes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stripes").finish_non_exhaustive()
    }
}
