//! What callers send to the refill actor, and how it is woken.
//!
//! Two ways in: *low-water signals*, from the hot path, through a lock-free queue that holds each sequence at
//! most once; and *messages*, from callers that have to wait anyway, first in, first out, under a short lock.
//! Neither grows without bound. A sequence signals once until the actor gives its permit back, and tells of a
//! revocation once until the actor has seen it. A caller that waits holds one of a limited number of places
//! (see `allocator::wait`), and callers that gave up leave before the queue grows.

use std::collections::VecDeque;
use std::fmt;
use std::mem;

use crate::error::ErrorKind;
use crate::range::{IdRange, Ranges};
use crate::sequence::parts::{Arrived, Core, Ending, Inbox, Mailbox, Message, Part, Question};
use crate::sequence::process::Process;
use crate::sync::{Arc, Mutex, Notify, SegQueue};

impl From<u64> for Question {
    fn from(want: u64) -> Self {
        Self { want, part: None, known: None }
    }
}

impl Part {
    pub(crate) fn new(core: Arc<Core>, ids: Ranges, generation: u64) -> Self {
        Self { core, ids, generation }
    }

    pub(crate) fn ids(&self) -> &Ranges {
        &self.ids
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes out the last range, which the caller of this now accounts for.
    pub(crate) fn pop(&mut self) -> Option<IdRange> {
        self.ids.pop()
    }

    /// Adds ids that follow these, taken under the same generation.
    pub(crate) fn extend(&mut self, ids: Ranges) {
        self.ids.extend(ids);
    }

    pub(crate) fn into_ids(mut self) -> Ranges {
        mem::replace(&mut self.ids, Ranges::none())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.core.stats.gap_dropped(self.ids.len());
    }
}

impl Message {
    /// Whether nobody needs it any more.
    fn is_idle(&self) -> bool {
        matches!(self, Self::Request(request) if request.reply.is_closed() && request.question.part.is_none())
    }

    /// Whether the same message is already on its way. Call it under the lock: the caller relies on that one
    /// being in the queue, or taken out of it and about to be read.
    fn is_repeated(&self) -> bool {
        matches!(self, Self::Revoked(core) if core.revocation_is_known())
    }
}

impl Inbox {
    /// Drops the messages of callers that gave up before the queue grows for another. A queue that has to
    /// grow doubles, so that not every message looks at all others.
    fn make_room(&mut self) {
        if self.queue.len() == self.queue.capacity() {
            self.queue.retain(|message| !message.is_idle());
            self.queue.reserve(self.queue.len() + 1);
        }
    }
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        let inbox = Mutex::new(Inbox { queue: VecDeque::new(), closed: None });
        Self { inbox, low: SegQueue::new(), wake: Notify::new(), process: Process::current() }
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

    /// Takes all messages that have arrived, and up to `most_low` signals: callers can signal as fast as the
    /// actor handles it, and timers, answers and messages must not wait for them.
    pub(crate) fn receive(&self, most_low: usize) -> Arrived {
        if self.is_forked() {
            return Arrived { messages: VecDeque::new(), low: Vec::new(), ending: Some(Ending::Abandoned) };
        }
        let mut inbox = self.inbox.lock();
        let (messages, ending) = (mem::take(&mut inbox.queue), inbox.closed);
        drop(inbox);
        Arrived { messages, low: self.low(most_low), ending }
    }

    fn low(&self, most: usize) -> Vec<Arc<Core>> {
        let mut low = Vec::new();
        for _ in 0..most {
            let Some(core) = self.low.pop() else { return low };
            // A sequence that is gone needs no refill.
            low.extend(core.upgrade());
        }
        // Those behind have woken the actor already: without this it would sleep on them.
        self.wake.notify_one();
        low
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

#[cfg(all(test, not(idmill_loom)))]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::sequence::settings::Settings;

    #[test]
    fn a_forked_process_sends_and_receives_nothing() {
        let mailbox = Mailbox { process: Process::another(), ..Mailbox::new() };
        // Whoever held it when the process was forked has not come along.
        let _held = mailbox.inbox.lock();
        assert!(mailbox.is_closed());
        assert_eq!(mailbox.receive(1).ending, Some(Ending::Abandoned), "its actor ends before it reserves");
    }

    #[test]
    fn signals_beyond_the_limit_are_left_for_the_next_turn() {
        let mailbox = Arc::new(Mailbox::new());
        let settings = Arc::new(Settings::of::<u64>());
        let core = |()| Arc::new(Core::new("orders".parse().unwrap(), settings.clone(), mailbox.clone()));
        let cores = [(); 5].map(core);
        for core in &cores {
            mailbox.signal(core);
        }
        let woken = || mailbox.woken().now_or_never().is_some();
        for (left, signals) in [(true, 2), (true, 2), (false, 1)] {
            assert!(woken(), "nothing else wakes the actor");
            assert_eq!(mailbox.receive(2).low.len(), signals);
            assert_eq!(woken().then(|| mailbox.wake.notify_one()).is_some(), left);
        }
    }
}
