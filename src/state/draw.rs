//! Draws from the memory of a sequence, and its revocation, for callers: they notify the actor.

use crate::error::{Error, ErrorKind};
use crate::range::{IdRange, Ranges};
use crate::state::core::Core;
use crate::state::mailbox::{Mailbox, Message};
use crate::state::segment::{Segment, Taken};
use crate::state::settings::Order;
use crate::sync::Arc;

impl Core {
    /// Draws one id from memory, starting at `segment`. Sets `segment` to the one from which the next draw
    /// starts.
    #[cold]
    #[inline(never)]
    pub(crate) fn draw(
        self: &Arc<Self>,
        segment: &mut Arc<Segment>,
        mailbox: &Mailbox,
    ) -> Result<u64, ErrorKind> {
        let drawn = self.stock.draw(segment)?;
        if drawn.low {
            self.signal_low(mailbox);
        }
        Ok(drawn.id)
    }

    /// Draws one id for this thread, after its block is used up.
    #[cfg(not(idmill_loom))]
    pub(crate) fn draw_by_thread(
        self: &Arc<Self>,
        blocks: &crate::state::block::table::BlockTable,
        mailbox: &Mailbox,
    ) -> Result<u64, ErrorKind> {
        // Check for a fork before taking the lock below: a thread that the fork did not copy may hold the
        // lock.
        if self.stock.is_forked() {
            self.stock.disown();
            return Err(ErrorKind::Closed);
        }
        let mut segment = self.stock.current();
        let take = || self.take_some(self.settings.block, &mut segment, mailbox);
        let id = blocks.renew(&self.stock, &self.stats, take);
        // If memory had no block, this returns the reason, or an id that has arrived since.
        id.map_or_else(|| self.draw(&mut segment, mailbox), Ok)
    }

    /// Draws `n` ids from memory. If memory has fewer, the error contains the ids drawn.
    pub(crate) fn take(self: &Arc<Self>, n: u64, mailbox: &Mailbox) -> Result<Ranges, Ranges> {
        let mut got = Ranges::none();
        match self.stock.take(n, |taken| got.push(self.noted(taken, mailbox))) {
            Ok(()) => Ok(got),
            Err(_) => Err(got),
        }
    }

    /// Draws up to `n` consecutive ids from memory, starting at `segment`. Sets `segment` to the one from
    /// which the next draw starts. Returns an empty range only if memory is empty.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_some(
        self: &Arc<Self>,
        n: u64,
        segment: &mut Arc<Segment>,
        mailbox: &Mailbox,
    ) -> IdRange {
        loop {
            let range = self.noted(segment.take(n), mailbox);
            if !range.is_empty() {
                return range;
            }
            match self.stock.advance(segment) {
                Ok(next) => *segment = next,
                Err(_) => return range,
            }
        }
    }

    /// Returns the error of a call that wanted `n` ids and does not wait. Starts a refill for them.
    #[cold]
    pub(crate) fn refused_many(self: &Arc<Self>, n: u64, mailbox: &Mailbox) -> Error {
        let level = self.stock.remaining();
        if self.settings.order != Order::Global {
            self.stats.note_wanted(n);
            self.signal_low(mailbox);
        }
        let message =
            format!("memory has {level} ids, {n} requested; try again after the refill, or use `take`");
        Error::new(ErrorKind::Empty, message)
    }

    fn noted(self: &Arc<Self>, taken: Taken, mailbox: &Mailbox) -> IdRange {
        if taken.low {
            self.signal_low(mailbox);
        }
        taken.range
    }

    /// Returns the error of a call that does not wait. Empty memory signals low water too: otherwise a caller
    /// that only uses `try_next` would never get an id.
    #[cold]
    pub(crate) fn refused(self: &Arc<Self>, reason: ErrorKind, mailbox: &Mailbox) -> Error {
        if reason == ErrorKind::Empty && self.settings.order != Order::Global {
            self.signal_low(mailbox);
        }
        reason.into()
    }

    /// Passes the actor a permit to refill. Called by the one draw that crosses the watermark, and by callers
    /// that find too few ids.
    #[cold]
    pub(crate) fn signal_low(self: &Arc<Self>, mailbox: &Mailbox) {
        if self.stock.is_forked() {
            return self.stock.disown();
        }
        if self.take_permit() {
            mailbox.signal(self);
        }
    }

    /// Revokes all ids in memory; see [`Stock::revoke`](crate::state::stock::Stock::revoke).
    pub(crate) fn revoke(self: &Arc<Self>, mailbox: &Mailbox) -> u64 {
        let lost = self.revoke_stock(ErrorKind::Empty);
        let held = self.give_up_thread_blocks();
        // A closed mailbox has no actor to notify.
        let _ = mailbox.send(Message::Revoked(self.clone()));
        lost + held
    }
}
