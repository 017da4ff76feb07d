//! Draws under [`Order::Thread`](crate::Order::Thread), where each thread holds a block of ids.

use super::CoreRef;
use crate::error::ErrorKind;
use crate::sequence::thread_blocks::ThreadBlocks;

/// Returns the next id for this thread after its block is used up.
pub(super) fn draw_slow(blocks: &ThreadBlocks, CoreRef { core, shared }: &CoreRef) -> Result<u64, ErrorKind> {
    // Check for a fork before taking the lock below: a thread that the fork did not copy may hold the lock.
    if core.stock.is_forked() {
        core.stock.disown();
        return Err(ErrorKind::Closed);
    }
    let mut segment = core.stock.current();
    let id = blocks.renew(&core.stock, &core.stats, || {
        core.take_some(core.settings.block, &mut segment, &shared.mailbox)
    });
    // If memory had no block, this returns the reason, or an id that has arrived since.
    id.map_or_else(|| core.draw(&mut segment, &shared.mailbox), Ok)
}
