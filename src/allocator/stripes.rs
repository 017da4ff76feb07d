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
    #[inline]
    pub(crate) fn draw(&self, core: &Arc<Core>) -> Result<u64, ErrorKind> {
        let cell = self.0.get_or(|| CachePadded::new(Cell::new(Block::EMPTY)));
        let mut block = cell.get();
        let outcome = match block.draw(&core.stock) {
            Some(id) => Ok(id),
            None => block.renew(core, core.settings.lease),
        };
        cell.set(block);
        outcome
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
