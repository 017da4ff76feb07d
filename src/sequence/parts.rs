//! What a sequence is made of: its core, its mailbox, and the messages between its callers and the actor.
//!
//! They refer to each other, so they are declared together. What a core does is in
//! [`state`](crate::sequence::state), what a mailbox does in [`mailbox`](crate::sequence::mailbox).

use std::collections::VecDeque;

#[cfg(not(idmill_loom))]
use crate::error::Error;
use crate::name::SequenceName;
use crate::range::Ranges;
use crate::sequence::answer::Answer;
use crate::sequence::process::Process;
use crate::sequence::settings::Settings;
use crate::sequence::stats::{Stats, Told};
use crate::sequence::stock::Stock;
use crate::sequence::time::Time;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Notify, SegQueue, Weak};

/// In this order, so that what a draw reads lies on one cache line, whichever of a
/// thousand sequences it is of.
#[repr(C)]
pub(crate) struct Core {
    /// What the threads hold for themselves under [`Order::Thread`].
    #[cfg(not(idmill_loom))]
    pub(crate) stripes: Option<Box<crate::sequence::stripes::Stripes>>,
    /// Unique in the process and never used again, unlike an address: what per-thread caches are keyed by.
    pub(crate) key: u64,
    pub(crate) stock: Stock,
    pub(crate) name: SequenceName,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stats: Stats,
    /// What of them the recorder of metrics knows.
    pub(crate) told: Told,
    pub(super) mailbox: Arc<Mailbox>,
    /// Whether a low-water signal is under way to the actor, or the actor knows that memory is low: the permit,
    /// which is neither lost nor piles up. Its owner is the signal, and then the actor.
    pub(super) low: AtomicBool,
    /// Whether the actor is still to hear of a revocation; set under the lock of its mailbox.
    pub(super) revoked: AtomicBool,
    /// How many allocators and handles refer to this core, or that it was evicted.
    pub(super) users: AtomicUsize,
    /// Where the actor keeps its side; written by the actor alone.
    pub(crate) slot: AtomicUsize,
    /// Why the last reserve failed; boxed, since there is seldom one. No part of any protocol.
    #[cfg(not(idmill_loom))]
    pub(super) failure: Mutex<Option<Box<Error>>>,
}

/// [`Core::slot`] before the actor has heard of the core.
pub(crate) const NO_SLOT: usize = usize::MAX;

/// A caller that waits for ids.
pub(crate) struct Request {
    pub(crate) core: Arc<Core>,
    pub(crate) question: Question,
    pub(crate) deadline: Time,
    pub(crate) reply: Answer,
}

/// A caller's question for ids.
pub(crate) struct Question {
    /// How many ids; 0 to be told when there are some in memory.
    pub(crate) want: u64,
    /// Those of them that the caller has already.
    pub(crate) part: Option<Part>,
    /// An earlier answer of the store.
    pub(crate) known: Option<Known>,
}

/// Ids that a `take` got before others had drawn the rest. If the call fails, the actor puts them back into
/// memory, unless larger ones were handed out. Dropped, they are a gap.
pub(crate) struct Part {
    pub(super) core: Arc<Core>,
    pub(super) ids: Ranges,
    /// The stock's generation before they were taken.
    pub(super) generation: u64,
}

/// How many ids the store had left to reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) unreserved: u64,
    /// [`Stats::moves`](crate::sequence::stats::Stats::moves) before it was asked: where it moved on, ids may
    /// have been under way that were neither in the store nor in memory.
    pub(crate) moves: u64,
}

pub(crate) enum Message {
    Request(Request),
    /// The stock of this core was revoked: what is under way was reserved before that.
    Revoked(Arc<Core>),
}

/// Why nobody will send any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All who could are gone.
    Abandoned,
    /// Somebody asked for it, and waits until all is put away.
    Asked,
}

/// The share of one turn of the actor.
pub(crate) struct Arrived {
    /// Oldest first.
    pub(crate) messages: VecDeque<Message>,
    /// Sequences that signalled low water. Their permits are the actor's from now on.
    pub(crate) low: Vec<Arc<Core>>,
    /// How the mailbox was closed, if it was; after the messages.
    pub(crate) ending: Option<Ending>,
}

pub(super) struct Inbox {
    pub(super) queue: VecDeque<Message>,
    pub(super) closed: Option<Ending>,
}

pub(crate) struct Mailbox {
    pub(super) inbox: Mutex<Inbox>,
    /// Weak: a core refers to its mailbox, and a signal that nobody takes any more would keep both for ever.
    pub(super) low: SegQueue<Weak<Core>>,
    pub(super) wake: Notify,
    /// Where the actor runs. In a fork of it nothing is sent or received, nor a lock waited for,
    /// whose holder has not come along.
    pub(super) process: Process,
}
