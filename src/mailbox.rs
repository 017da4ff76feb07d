//! What callers send to the refill actor, and how it is woken.
//!
//! Two ways in: *low-water signals*, from the hot path, through a lock-free queue that holds each sequence at most once;
//! and *messages*, from callers that have to wait anyway, first in, first out, under a short lock. Neither grows
//! without bound: a sequence signals once until it is seen, and a caller that waits holds one of a limited number of places
//! (see `allocator::wait`).

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::time::Duration;

use crate::core::Core;
use crate::error::{ErrorKind, Result};
use crate::range::Ranges;
use crate::sync::{Arc, Mutex, Notify, SegQueue, Weak, oneshot};

/// A point in time, as the time since the actor's clock began. The refill engine knows no other clock.
pub(crate) type Time = Duration;

/// A caller that waits for ids.
pub(crate) struct Request {
    pub(crate) core: Arc<Core>,
    /// How many ids; 0 to be told when there are some in memory.
    pub(crate) want: u64,
    pub(crate) deadline: Time,
    pub(crate) reply: oneshot::Sender<Result<Ranges>>,
}

pub(crate) enum Message {
    Request(Request),
    /// The stock of this core was revoked: what is under way was reserved before that.
    Revoked(Arc<Core>),
}

/// How it came that nobody will send any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All who could are gone.
    Abandoned,
    /// Somebody asked for it, and waits until all is put away.
    Asked,
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Message>,
    closed: Option<Ending>,
}

pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
    /// Weak: a core refers to its mailbox, and a signal that nobody takes any more would keep both for ever.
    low: SegQueue<Weak<Core>>,
    wake: Notify,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self { inbox: Mutex::new(Inbox::default()), low: SegQueue::new(), wake: Notify::new() }
    }

    /// Tells the actor that a sequence is at low water.
    pub(crate) fn signal(&self, core: &Arc<Core>) {
        self.low.push(Arc::downgrade(core));
        // After the push: woken before it, the actor could look, find nothing, and sleep on.
        self.wake.notify_one();
    }

    /// Queues a message.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if nobody will ever read it.
    pub(crate) fn send(&self, message: Message) -> Result<(), ErrorKind> {
        let mut inbox = self.inbox.lock();
        if inbox.closed.is_some() {
            return Err(ErrorKind::Closed);
        }
        inbox.queue.push_back(message);
        drop(inbox);
        self.wake.notify_one();
        Ok(())
    }

    /// Refuses messages from now on, and wakes the actor to its end. The first to end it says how.
    pub(crate) fn close(&self, ending: Ending) {
        self.inbox.lock().closed.get_or_insert(ending);
        self.wake.notify_one();
    }

    /// Whether messages are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.inbox.lock().closed.is_some()
    }

    /// All messages that have arrived, oldest first, and whether and how the mailbox was closed after them.
    pub(crate) fn receive(&self) -> (VecDeque<Message>, Option<Ending>) {
        let mut inbox = self.inbox.lock();
        (mem::take(&mut inbox.queue), inbox.closed)
    }

    /// A sequence that signalled low water, and whose permit is herewith taken.
    pub(crate) fn next_low(&self) -> Option<Arc<Core>> {
        loop {
            // One that is gone needs no refill.
            if let Some(core) = self.low.pop()?.upgrade() {
                core.low_seen();
                return Some(core);
            }
        }
    }

    /// Resolves once something has happened since it last did.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}
