//! The in-process state of one sequence: what its callers and the refill actor share.

use std::fmt;

#[cfg(not(idmill_loom))]
use crate::error::Status;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SequenceName;
use crate::range::{IdRange, Ranges};
use crate::sequence::parts::{Core, Mailbox, Message, NO_SLOT};
use crate::sequence::segment::{Segment, Taken};
use crate::sequence::settings::{Order, Settings};
use crate::sequence::stats::{Stats, Told};
use crate::sequence::stock::Stock;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};

/// `users` of a core that was evicted: nobody may take it up again.
const EVICTED: usize = usize::MAX;

impl Core {
    /// A core with one user: the caller.
    pub(crate) fn new(name: SequenceName, settings: Arc<Settings>, mailbox: Arc<Mailbox>) -> Self {
        Self {
            key: next_key(),
            name,
            stock: Stock::new(),
            stats: Stats::default(),
            told: Told::default(),
            mailbox,
            low: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            users: AtomicUsize::new(1),
            slot: AtomicUsize::new(NO_SLOT),
            #[cfg(not(idmill_loom))]
            failure: crate::sync::Mutex::new(None),
            #[cfg(not(idmill_loom))]
            stripes: (settings.order == Order::Thread).then(Box::default),
            settings,
        }
    }

    /// Draws one id from this very segment.
    #[inline]
    pub(crate) fn draw_here(self: &Arc<Self>, segment: &Segment) -> Option<u64> {
        segment.draw_noting(|| self.signal_low())
    }

    /// Draws one id from memory, from `segment` on; leaves in it the segment to begin with the next time.
    #[cold]
    #[inline(never)]
    pub(crate) fn draw(self: &Arc<Self>, segment: &mut Arc<Segment>) -> Result<u64, ErrorKind> {
        let drawn = self.stock.draw(segment)?;
        if drawn.low {
            self.signal_low();
        }
        Ok(drawn.id)
    }

    /// Draws `n` ids from memory. If memory has fewer, they are the error.
    pub(crate) fn take(self: &Arc<Self>, n: u64) -> Result<Ranges, Ranges> {
        let mut got = Ranges::none();
        match self.stock.take(n, |taken| got.push(self.noted(taken))) {
            Ok(()) => Ok(got),
            Err(_) => Err(got),
        }
    }

    /// Draws up to `n` consecutive ids from memory, from `segment` on, leaving in it the segment to begin
    /// with the next time; empty only if nothing is in memory.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_some(self: &Arc<Self>, n: u64, segment: &mut Arc<Segment>) -> IdRange {
        loop {
            let range = self.noted(segment.take(n));
            if !range.is_empty() {
                return range;
            }
            match self.stock.advance(segment) {
                Ok(next) => *segment = next,
                Err(_) => return range,
            }
        }
    }

    /// How many ids were drawn or replied so far, without those that were dropped then.
    pub(crate) fn drawn(&self) -> u64 {
        self.left().saturating_sub(self.stats.dropped())
    }

    /// How many ids left memory to be drawn, or were replied: a count that never goes down.
    pub(crate) fn left(&self) -> u64 {
        let stats = &self.stats;
        // What is revoked at this very moment would look drawn.
        self.stock.still(|remaining| {
            (stats.published() + stats.replied()).saturating_sub(remaining + stats.revoked())
        })
    }

    fn noted(self: &Arc<Self>, taken: Taken) -> IdRange {
        if taken.low {
            self.signal_low();
        }
        taken.range
    }

    /// The error of a caller that does not wait. That nothing is in memory is a signal as the watermark is:
    /// else a caller that only ever tries would get an id from nobody.
    #[cold]
    pub(crate) fn refused(self: &Arc<Self>, reason: ErrorKind) -> Error {
        if reason == ErrorKind::Dry && self.settings.order != Order::Global {
            self.signal_low();
        }
        reason.into()
    }

    /// Leaves the actor a permit to refill. Called by the one draw that crosses the watermark,
    /// and by those that find nothing.
    #[cold]
    fn signal_low(self: &Arc<Self>) {
        if self.stock.is_forked() {
            return self.stock.disown();
        }
        // AcqRel: pairs with `low_is_over`. Finding it set means that the actor will look at the level after
        // this draw, or refills already.
        if !self.low.swap(true, Ordering::AcqRel) {
            self.mailbox.signal(self);
        }
    }

    /// The actor lets callers signal again, before it looks at the level.
    pub(crate) fn low_is_over(&self) {
        // AcqRel: pairs with `signal_low`, whose draw is seen by the look at the level that follows.
        self.low.swap(false, Ordering::AcqRel);
    }

    /// The actor knows that memory is low, and keeps callers from signalling it. `false` if a signal is under
    /// way, which then does so.
    pub(crate) fn low_is_known(&self) -> bool {
        !self.low.swap(true, Ordering::AcqRel)
    }

    /// Queues a message for the actor.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the actor is gone.
    pub(crate) fn send(&self, message: Message) -> Result<(), ErrorKind> {
        self.mailbox.send(message)
    }

    /// Takes everything in memory away from everybody; see [`Stock::revoke`].
    pub(crate) fn revoke(self: &Arc<Self>) -> u64 {
        let lost = self.revoke_stock(ErrorKind::Dry);
        let held = self.give_up_stripes();
        // A closed mailbox has no actor that would have to hear of it.
        let _ = self.send(Message::Revoked(self.clone()));
        lost + held
    }

    /// The actor hears of the revocations up to now, before it marks what is in flight.
    pub(crate) fn revocation_seen(&self) {
        // AcqRel: pairs with `revocation_is_known`.
        self.revoked.swap(false, Ordering::AcqRel);
    }

    /// Empties memory, and counts what that costs as revoked. Returns how many ids that are.
    pub(crate) fn revoke_stock(&self, reason: ErrorKind) -> u64 {
        self.stock.revoke(reason, |lost| self.stats.gap_revoked(lost.len())).len()
    }

    /// Ends the sequence in this process: whoever draws hears that it is closed.
    pub(crate) fn close(&self) {
        self.revoke_stock(ErrorKind::Closed);
        self.give_up_stripes();
    }

    /// Counts what the threads hold as lost, after the stock was revoked. Returns how many ids that are.
    pub(crate) fn give_up_stripes(&self) -> u64 {
        #[cfg(not(idmill_loom))]
        if let Some(stripes) = self.stripes.as_ref().filter(|_| !self.stock.is_forked()) {
            return stripes.give_up(&self.stock, &self.stats);
        }
        0
    }

    /// Whether ids are in memory, or in the blocks of threads.
    #[cfg(not(idmill_loom))]
    pub(crate) fn holds_ids(&self) -> bool {
        self.stock.remaining() > 0
            || self.stripes.as_ref().is_some_and(|stripes| stripes.hold_ids(&self.stock))
    }

    /// A reserve failed. Returns whether this is a change of state: see [`note_error`](Self::note_error).
    pub(crate) fn note_failure(&self, error: &Error) -> bool {
        self.stats.add_failures(1);
        if error.kind() != ErrorKind::Exhausted {
            self.stats.note_failing();
        }
        self.note_error(error)
    }

    /// Keeps the error until the store grants again. Returns whether it changes the state: the error before
    /// it was of another kind, or there was none. All errors that pass by themselves are one kind here: during
    /// an outage they alternate.
    pub(crate) fn note_error(&self, error: &Error) -> bool {
        #[cfg(not(idmill_loom))]
        {
            let kind = |error: &Error| (error.status() == Status::Permanent).then_some(error.kind());
            let before = self.failure.lock().replace(Box::new(error.clone()));
            before.is_none_or(|before| kind(&before) != kind(error))
        }
        #[cfg(idmill_loom)]
        {
            let _ = error;
            false
        }
    }

    /// The store granted.
    pub(crate) fn forget_error(&self) {
        #[cfg(not(idmill_loom))]
        self.failure.lock().take();
    }

    /// Whether the store last answered that the sequence is exhausted, and memory is empty. The next caller may
    /// ask again after a while; until the store grants, the sequence stays exhausted.
    pub(crate) fn is_exhausted(&self) -> bool {
        #[cfg(not(idmill_loom))]
        {
            let is_end = |error: &Error| error.kind() == ErrorKind::Exhausted;
            self.failure.lock().as_deref().is_some_and(is_end) && self.stock.remaining() == 0
        }
        #[cfg(idmill_loom)]
        false
    }

    /// Why the last reserve failed; `None` if it was granted.
    #[cfg(not(idmill_loom))]
    pub(crate) fn last_failure(&self) -> Option<Error> {
        self.failure.lock().as_deref().cloned()
    }

    /// Another allocator or handle refers to this core; `false` if it was evicted meanwhile.
    pub(crate) fn enter(&self) -> bool {
        let mut users = self.users.load(Ordering::Relaxed);
        loop {
            if users == EVICTED {
                return false;
            }
            // AcqRel: pairs with `evict`, so that exactly one of the two wins;
            // nothing else is published by it.
            match self.users.compare_exchange_weak(users, users + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => users = now,
            }
        }
    }

    /// One of them is gone.
    pub(crate) fn leave(&self) {
        // Release: what the user did with the core happens before its eviction.
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Whether anybody refers to this core now.
    pub(crate) fn is_used(&self) -> bool {
        // Relaxed: a hint. Whoever comes after it finds memory as it is, and asks.
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Whether nobody refers to this core and, from now on, nobody can.
    pub(crate) fn evict(&self) -> bool {
        // AcqRel: pairs with `enter` and `leave`.
        self.users.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the actor is to hear of a revocation already, so that it need not be told of one more.
    pub(crate) fn revocation_is_known(&self) -> bool {
        // AcqRel: pairs with `revocation_seen`. Finding it set means that the actor has yet to mark what is
        // in flight, and will do so after this revocation.
        self.revoked.swap(true, Ordering::AcqRel)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("key", &self.key).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Not behind the facade: a plain counter of the process, with no part in any protocol,
/// that must outlive a model run.
fn next_key() -> u64 {
    static KEY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    KEY.fetch_add(1, Ordering::Relaxed)
}
