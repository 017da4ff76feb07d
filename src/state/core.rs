//! The in-process state of one sequence, shared by its callers and the refill actor. Draws from it are in
//! [`draw`](crate::state::draw).

#[cfg(not(idmill_loom))]
use crate::error::Status;
use crate::error::{Error, ErrorKind};
use crate::name::SequenceName;
use crate::state::settings::{Order, Settings, Sizing};
use crate::state::stats::Stats;
use crate::state::stock::Stock;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering};

/// `users` of an evicted core: it cannot be used again.
const EVICTED: usize = usize::MAX;

/// The fields are in this order, so that those written during a refill are far from the generation in
/// `stock`, which each draw from a block reads.
#[repr(C)]
pub(crate) struct Core {
    /// The ids held by threads under [`Order::Thread`].
    #[cfg(not(idmill_loom))]
    pub(crate) blocks: Option<Arc<crate::state::block::table::BlockTable>>,
    /// Unique in the process and never reused, unlike an address: the key of per-thread caches.
    pub(crate) key: u64,
    pub(crate) stock: Stock,
    pub(crate) name: SequenceName,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stats: Stats,
    /// The counts that the metrics recorder already has.
    #[cfg(feature = "metrics")]
    pub(crate) reported: crate::state::stats::Reported,
    /// The low-water permit: set while a signal is on its way to the actor, or the actor has noted that
    /// memory is low. The permit is neither lost nor duplicated. It belongs to the signal, and then to the
    /// actor.
    low: AtomicBool,
    /// Whether the actor has yet to handle a revocation; set under the lock of the mailbox.
    revoked: AtomicBool,
    /// Whether the metrics of this sequence are summed with those of others.
    #[cfg(feature = "metrics")]
    pub(crate) among_others: AtomicBool,
    /// The number of opened allocators of this core, each with its clones and handles, or a mark that it was
    /// evicted.
    users: AtomicUsize,
    /// The index of this core's driver in the actor; only the actor writes it.
    pub(crate) slot: AtomicUsize,
    /// The error of the last reserve; boxed, since there is seldom one. Only for reports, so loom does not
    /// need it.
    #[cfg(not(idmill_loom))]
    failure: Mutex<Option<Box<Error>>>,
}

/// [`Core::slot`] before the actor handles the first event of the core.
pub(crate) const NO_SLOT: usize = usize::MAX;

impl Core {
    /// Creates a core with one user: the caller.
    pub(crate) fn new(name: SequenceName, settings: Arc<Settings>) -> Self {
        Self {
            key: next_key(),
            name,
            stock: Stock::new(),
            stats: Stats::default(),
            #[cfg(feature = "metrics")]
            reported: crate::state::stats::Reported::default(),
            low: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            #[cfg(feature = "metrics")]
            among_others: AtomicBool::new(false),
            users: AtomicUsize::new(1),
            slot: AtomicUsize::new(NO_SLOT),
            #[cfg(not(idmill_loom))]
            failure: Mutex::new(None),
            #[cfg(not(idmill_loom))]
            blocks: (settings.order == Order::Thread).then(Arc::default),
            settings,
        }
    }

    /// Returns the sizing for the bounds of the stored sequence, as far as they are known.
    pub(crate) fn sizing(&self) -> Sizing {
        let sizing = self.settings.sizing;
        self.stats.seen_bounds().map_or(sizing, |bounds| sizing.within(bounds))
    }

    /// Returns how many ids were drawn or sent to waiting callers, without those dropped afterwards.
    pub(crate) fn drawn(&self) -> u64 {
        self.left().saturating_sub(self.stats.dropped())
    }

    /// Returns how many ids left memory by draws, or were sent to waiting callers. Ids put back by a `take`
    /// lower this count.
    pub(crate) fn left(&self) -> u64 {
        let stats = &self.stats;
        // Under the lock: ids that are being revoked would otherwise be counted as drawn.
        self.stock.still(|remaining| {
            (stats.published() + stats.replied()).saturating_sub(remaining + stats.revoked())
        })
    }

    /// Takes the low-water permit, before a signal or once the actor has noted that memory is low. `false` if
    /// it is taken: then the actor will read the level after this call, or is already refilling.
    pub(crate) fn take_permit(&self) -> bool {
        // AcqRel: pairs with `give_permit_back`.
        !self.low.swap(true, Ordering::AcqRel)
    }

    /// Lets callers signal again. The actor calls this before it reads the level.
    pub(crate) fn give_permit_back(&self) {
        // AcqRel: pairs with `take_permit`: the level read after this includes the draw that signalled.
        self.low.swap(false, Ordering::AcqRel);
    }

    /// Lets later revocations send a message again. Called before the actor marks the reserve in flight as
    /// revoked.
    pub(crate) fn revocation_seen(&self) {
        // AcqRel: pairs with `revocation_is_known`.
        self.revoked.swap(false, Ordering::AcqRel);
    }

    /// Empties memory, and counts its ids as revoked. Returns their number.
    pub(crate) fn revoke_stock(&self, reason: ErrorKind) -> u64 {
        self.stock.revoke(reason, |lost| self.stats.gap_revoked(lost.len())).len()
    }

    /// Ends the sequence in this process: all draws return `Closed`.
    pub(crate) fn close(&self) {
        self.revoke_stock(ErrorKind::Closed);
        self.give_up_thread_blocks();
    }

    /// Counts the ids held by threads as lost, after the stock was revoked. Returns their number.
    pub(crate) fn give_up_thread_blocks(&self) -> u64 {
        #[cfg(not(idmill_loom))]
        if let Some(blocks) = self.blocks.as_ref().filter(|_| !self.stock.is_forked()) {
            return blocks.give_up(&self.stock, &self.stats);
        }
        0
    }

    /// Whether memory or thread blocks contain ids.
    #[cfg(not(idmill_loom))]
    pub(crate) fn holds_ids(&self) -> bool {
        self.stock.remaining() > 0 || self.blocks.as_ref().is_some_and(|blocks| blocks.hold_ids(&self.stock))
    }

    /// Notes a failed reserve. Returns whether this changes the state: see [`note_error`](Self::note_error).
    pub(crate) fn note_failure(&self, error: &Error) -> bool {
        self.stats.add_failures(1);
        if error.kind() != ErrorKind::Exhausted {
            self.stats.note_failing();
        }
        self.note_error(error)
    }

    /// Keeps the error until the store grants again. Returns whether it changes the state: the previous error
    /// was of another kind, or there was none. All errors that are not permanent count as one kind: they
    /// alternate during an outage.
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

    /// Clears the error after a grant.
    pub(crate) fn forget_error(&self) {
        #[cfg(not(idmill_loom))]
        self.failure.lock().take();
    }

    /// Whether the store last reported the sequence as exhausted, and memory is empty. After 30 s, the next
    /// caller may start a reserve; until that reserve is answered, the sequence stays exhausted.
    pub(crate) fn is_exhausted(&self) -> bool {
        #[cfg(not(idmill_loom))]
        {
            let is_end = |error: &Error| error.kind() == ErrorKind::Exhausted;
            self.failure.lock().as_deref().is_some_and(is_end) && self.stock.remaining() == 0
        }
        #[cfg(idmill_loom)]
        false
    }

    /// Returns the last reserve's error, or `Exhausted` if its grant reached the end of the sequence; `None`
    /// after any other grant.
    #[cfg(not(idmill_loom))]
    pub(crate) fn last_failure(&self) -> Option<Error> {
        self.failure.lock().as_deref().cloned()
    }

    /// Adds a user; `false` if the core has been evicted.
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

    /// Removes a user.
    pub(crate) fn leave(&self) {
        // Release: the user's accesses to the core happen before its eviction.
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Whether the core has users now.
    pub(crate) fn is_used(&self) -> bool {
        // Relaxed: a hint. A later caller that finds memory empty sends a request.
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Evicts the core if it has no users; returns whether it did. An evicted core gets no users again.
    pub(crate) fn evict(&self) -> bool {
        // AcqRel: pairs with `enter` and `leave`.
        self.users.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Marks a revocation as sent. Returns whether the actor has yet to handle an earlier one, which then
    /// covers this one.
    pub(crate) fn revocation_is_known(&self) -> bool {
        // AcqRel: pairs with `revocation_seen`. If `revoked` is already set, the actor has yet to mark the
        // reserve in flight as revoked, and will do so after this revocation.
        self.revoked.swap(true, Ordering::AcqRel)
    }
}

/// Returns a new key. The counter is not from `crate::sync`: it is part of no protocol, and must outlive a
/// run of the model checker.
fn next_key() -> u64 {
    static KEY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    KEY.fetch_add(1, Ordering::Relaxed)
}
