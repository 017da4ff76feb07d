//! Draws of threads that hold their own ids, under [`Order::Thread`](crate::Order::Thread).

use crate::error::ErrorKind;
use crate::sequence::parts::Core;
use crate::sequence::stripes::Stripes;
use crate::sync::Arc;

/// Returns the next id for this thread, whose own block has none.
pub(super) fn draw_on(stripes: &Stripes, core: &Arc<Core>) -> Result<u64, ErrorKind> {
    // Before its lock, which a thread that was not copied may have held.
    if core.stock.is_forked() {
        core.stock.disown();
        return Err(ErrorKind::Closed);
    }
    let mut segment = core.stock.current();
    let id = stripes.renew(&core.stock, &core.stats, || core.take_some(core.settings.lease, &mut segment));
    // Without a block, this finds out why there is none, or an id that has come meanwhile.
    id.map_or_else(|| core.draw(&mut segment), Ok)
}
