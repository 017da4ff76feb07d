//! What callers send to the refill actor, and how it is woken.
//!
//! Two ways in: *low-water signals*, from the hot path, through a lock-free queue that holds each sequence at
//! most once; and *messages*, from callers that have to wait anyway, first in, first out, under a short lock.
//! Neither grows without bound: a sequence signals once until it is seen, and so does one that was revoked; a
//! caller that waits holds one of a limited number of places (see `allocator::wait`), and those that gave up
//! leave before the queue grows.

use std::collections::VecDeque;
use std::fmt;
use std::mem;

use crate::error::{ErrorKind, Result};
use crate::range::Ranges;
use crate::sequence::process::Process;
use crate::sequence::time::Time;
use crate::sync::{Arc, Mutex, Notify, SegQueue, Weak, oneshot};

/// A sequence, as far as its messages go. [`Core`](crate::sequence::state::Core) is the one there is; named
/// here, it and its mailbox would refer to each other.
pub(crate) trait Sender {
    /// The actor takes the permit to refill, before it looks at the level.
    fn low_seen(&self);
    /// Whether the actor is to hear of a revocation already, so that it need not be told of one more.
    fn revocation_is_known(&self) -> bool;
}

/// A caller that waits for ids.
pub(crate) struct Request<S> {
    pub(crate) core: Arc<S>,
    /// How many ids; 0 to be told when there are some in memory.
    pub(crate) want: u64,
    pub(crate) deadline: Time,
    pub(crate) reply: oneshot::Sender<Result<Ranges>>,
}

pub(crate) enum Message<S> {
    Request(Request<S>),
    /// The stock of this core was revoked: what is under way was reserved before that.
    Revoked(Arc<S>),
}

/// Why nobody will send any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All who could are gone.
    Abandoned,
    /// Somebody asked for it, and waits until all is put away.
    Asked,
}

struct Inbox<S> {
    queue: VecDeque<Message<S>>,
    closed: Option<Ending>,
}

pub(crate) struct Mailbox<S> {
    inbox: Mutex<Inbox<S>>,
    /// Weak: a core refers to its mailbox, and a signal that nobody takes any more would keep both for ever.
    low: SegQueue<Weak<S>>,
    wake: Notify,
    /// Where the actor runs. In a fork of it nothing is sent or received, nor a lock waited for,
    /// whose holder has not come along.
    process: Process,
}

impl<S: Sender> Message<S> {
    /// Whether nobody needs it any more.
    fn is_idle(&self) -> bool {
        matches!(self, Self::Request(request) if request.reply.is_closed())
    }

    /// Whether the same message is already on its way. Call it under the lock: the caller relies on that one
    /// being in the queue, or taken out of it and about to be read.
    fn is_repeated(&self) -> bool {
        matches!(self, Self::Revoked(core) if core.revocation_is_known())
    }
}

impl<S: Sender> Inbox<S> {
    /// Drops the messages of callers that gave up before the queue grows for another. A queue that has to
    /// grow doubles, so that not every message looks at all others.
    fn make_room(&mut self) {
        if self.queue.len() == self.queue.capacity() {
            self.queue.retain(|message| !message.is_idle());
            self.queue.reserve(self.queue.len() + 1);
        }
    }
}

impl<S: Sender> Mailbox<S> {
    pub(crate) fn new() -> Self {
        let inbox = Mutex::new(Inbox { queue: VecDeque::new(), closed: None });
        Self { inbox, low: SegQueue::new(), wake: Notify::new(), process: Process::current() }
    }

    /// Tells the actor that a sequence is at low water.
    pub(crate) fn signal(&self, core: &Arc<S>) {
        self.low.push(Arc::downgrade(core));
        // After the push: woken before it, the actor could look, find nothing, and sleep on.
        self.wake.notify_one();
    }

    /// Queues a message.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if nobody will ever read it.
    pub(crate) fn send(&self, message: Message<S>) -> Result<(), ErrorKind> {
        if self.is_forked() {
            return Err(ErrorKind::Closed);
        }
        let mut inbox = self.inbox.lock();
        if inbox.closed.is_some() {
            return Err(ErrorKind::Closed);
        }
        if message.is_repeated() {
            return Ok(());
        }
        inbox.make_room();
        inbox.queue.push_back(message);
        drop(inbox);
        self.wake.notify_one();
        Ok(())
    }

    /// Refuses messages from now on, and wakes the actor to its end. The first to end it says how.
    pub(crate) fn close(&self, ending: Ending) {
        if self.is_forked() {
            return;
        }
        self.inbox.lock().closed.get_or_insert(ending);
        self.wake.notify_one();
    }

    /// Whether messages are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_forked() || self.inbox.lock().closed.is_some()
    }

    /// Whether this is a fork of the process whose actor reads this.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.is_another()
    }

    /// All messages that have arrived, oldest first, and whether and how the mailbox was closed after them.
    pub(crate) fn receive(&self) -> (VecDeque<Message<S>>, Option<Ending>) {
        if self.is_forked() {
            return (VecDeque::new(), Some(Ending::Abandoned));
        }
        let mut inbox = self.inbox.lock();
        (mem::take(&mut inbox.queue), inbox.closed)
    }

    /// A sequence that signalled low water, and whose permit is herewith taken.
    pub(crate) fn next_low(&self) -> Option<Arc<S>> {
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

impl<S> fmt::Debug for Mailbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Sender for Nobody {
        fn low_seen(&self) {}

        fn revocation_is_known(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_forked_process_sends_and_receives_nothing() {
        let mailbox = Mailbox::<Nobody> { process: Process::another(), ..Mailbox::new() };
        // Whoever held it when the process was forked has not come along.
        let _held = mailbox.inbox.lock();
        assert!(mailbox.is_closed());
        assert_eq!(mailbox.receive().1, Some(Ending::Abandoned), "its actor ends before it reserves");
    }
}
