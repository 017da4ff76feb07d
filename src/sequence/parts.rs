//! The parts of a sequence: its core, its mailbox, and the messages between its callers and the actor.
//!
//! They refer to each other, so they are declared together. The methods of a core are in
//! [`state`](crate::sequence::state), those of a mailbox in [`mailbox`](crate::sequence::mailbox).

use std::collections::VecDeque;

#[cfg(not(idmill_loom))]
use crate::error::Error;
use crate::name::SequenceName;
use crate::sequence::answer::Answer;
use crate::sequence::process::Process;
use crate::sequence::settings::Settings;
use crate::sequence::stats::{Reported, Stats};
use crate::sequence::stock::Stock;
use crate::sequence::time::Time;
use crate::sequence::want::Want;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Notify, SegQueue, Weak};

/// The fields are in this order, so that a draw reads one cache line of the core. This matters when drawing
/// from a thousand sequences.
#[repr(C)]
pub(crate) struct Core {
    /// The ids held by threads under [`Order::Thread`].
    #[cfg(not(idmill_loom))]
    pub(crate) blocks: Option<Box<crate::sequence::thread_blocks::ThreadBlocks>>,
    /// Unique in the process and never reused, unlike an address: the key of per-thread caches.
    pub(crate) key: u64,
    pub(crate) stock: Stock,
    pub(crate) name: SequenceName,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stats: Stats,
    /// The counts that the metrics recorder already has.
    pub(crate) reported: Reported,
    pub(super) mailbox: Arc<Mailbox>,
    /// The low-water permit: set while a signal is on its way to the actor, or the actor has noted that
    /// memory is low. The permit is neither lost nor duplicated. It belongs to the signal, and then to the
    /// actor.
    pub(super) low: AtomicBool,
    /// Whether the actor has yet to handle a revocation; set under the lock of its mailbox.
    pub(super) revoked: AtomicBool,
    /// Whether the metrics of this sequence are summed with those of others.
    #[cfg(feature = "metrics")]
    pub(crate) among_others: AtomicBool,
    /// The number of allocators and handles of this core, or a mark that it was evicted.
    pub(super) users: AtomicUsize,
    /// The index of this core's driver in the actor; only the actor writes it.
    pub(crate) slot: AtomicUsize,
    /// The error of the last reserve; boxed, since there is seldom one. Only for reports, so loom does not
    /// need it.
    #[cfg(not(idmill_loom))]
    pub(super) failure: Mutex<Option<Box<Error>>>,
}

/// [`Core::slot`] before the actor handles the first event of the core.
pub(crate) const NO_SLOT: usize = usize::MAX;

/// A waiting caller.
pub(crate) struct Request {
    pub(crate) core: Arc<Core>,
    pub(crate) question: Question,
    pub(crate) deadline: Time,
    pub(crate) reply: Answer,
}

/// A caller's request for ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) want: Want,
    /// How many ids the store had left, if known.
    pub(crate) known: Option<Known>,
}

/// The number of ids that the store had left to reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) unreserved: u64,
    /// [`Stats::moves`](crate::sequence::stats::Stats::moves) before the store was read. If it has changed,
    /// ids may have been in flight that were neither in the store nor in memory.
    pub(crate) moves: u64,
}

pub(crate) enum Message {
    Request(Request),
    /// The stock of this core was revoked: a reserve in flight may have been sent before that.
    Revoked(Arc<Core>),
}

/// Why no more messages will follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The actor's runtime has ended, or the process is a fork: no ids are given back.
    Abandoned,
    /// The sequences were closed or dropped: the unused ids are given back.
    Asked,
}

/// The work for one turn of the actor.
pub(crate) struct Arrived {
    /// Oldest first.
    pub(crate) messages: VecDeque<Message>,
    /// Sequences that signalled low water. The actor now has their permits.
    pub(crate) low: Vec<Arc<Core>>,
    /// How the mailbox was closed, if it was. To be handled after the messages.
    pub(crate) ending: Option<Ending>,
}

pub(super) struct Inbox {
    pub(super) queue: VecDeque<Message>,
    pub(super) closed: Option<Ending>,
}

pub(crate) struct Mailbox {
    pub(super) inbox: Mutex<Inbox>,
    /// Weak: a core refers to its mailbox, so a signal that is never received would keep both alive.
    pub(super) low: SegQueue<Weak<Core>>,
    pub(super) wake: Notify,
    /// The actor's process. A fork sends and receives nothing, and waits for no lock: the thread that holds
    /// the lock may not exist in the fork.
    pub(super) process: Process,
}
