//! Messages from callers to the refill actor, and its wake-up.
//!
//! There are two queues. *Low-water signals* come from the hot path, through a lock-free queue that holds
//! each sequence at most once. *Messages* come from revocations and from callers that have to wait, first in,
//! first out, under a short lock. Both queues are bounded. A sequence signals once until the actor returns
//! its permit, and reports a revocation once until the actor has handled it. Each waiting caller holds one of
//! a limited number of places (see `allocator::wait`), and callers that gave up are removed before the queue
//! grows.

use std::collections::VecDeque;
use std::mem;

use crate::error::ErrorKind;
use crate::state::core::Core;
use crate::state::fork::Process;
use crate::state::reply::{Answer, Place, Reply};
use crate::state::time::Time;
use crate::state::want::Want;
use crate::sync::{Arc, Mutex, Notify, SegQueue, Weak};

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
    pub(crate) known: Option<Unreserved>,
}

/// The number of ids that the store had left to reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreserved {
    pub(crate) ids: u64,
    /// [`Stats::moves`](crate::state::stats::Stats::moves) before the store was read. If it has changed,
    /// ids may have been in flight that were neither in the store nor in memory.
    pub(crate) moves: u64,
}

impl From<Want> for Question {
    fn from(want: Want) -> Self {
        Self { want, known: None }
    }
}

pub(crate) enum Message {
    Request(Request),
    /// The stock of this core was revoked: a reserve in flight may have been sent before that.
    Revoked(Arc<Core>),
}

impl Message {
    pub(crate) fn core(&self) -> &Arc<Core> {
        match self {
            Self::Request(request) => &request.core,
            Self::Revoked(core) => core,
        }
    }

    /// Whether the message has no effect any more.
    fn is_idle(&self) -> bool {
        matches!(self, Self::Request(request) if request.reply.is_closed())
    }

    /// Marks a revocation as sent; returns whether one is already on its way. Call it under the lock: then
    /// that message is in the queue, or has been received and will be handled.
    fn is_repeated(&self) -> bool {
        matches!(self, Self::Revoked(core) if core.revocation_is_known())
    }
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

struct Inbox {
    queue: VecDeque<Message>,
    closed: Option<Ending>,
}

impl Inbox {
    /// Before the queue grows, removes the messages that have no effect any more. A growing queue doubles, so
    /// that the cost per message stays constant.
    fn make_room(&mut self) {
        if self.queue.len() == self.queue.capacity() {
            self.queue.retain(|message| !message.is_idle());
            self.queue.reserve(self.queue.len() + 1);
        }
    }
}

pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
    /// Weak: a signal that is never received keeps no core alive.
    low: SegQueue<Weak<Core>>,
    wake: Notify,
    /// The actor's process. A fork sends and receives nothing, and waits for no lock: the thread that holds
    /// the lock may not exist in the fork.
    process: Process,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        let inbox = Mutex::new(Inbox { queue: VecDeque::new(), closed: None });
        Self { inbox, low: SegQueue::new(), wake: Notify::new(), process: Process::current() }
    }

    /// Signals to the actor that a sequence is at low water.
    pub(crate) fn signal(&self, core: &Arc<Core>) {
        self.low.push(Arc::downgrade(core));
        // After the push: if woken before it, the actor could find the queue empty and sleep on.
        self.wake.notify_one();
    }

    /// Queues a request for ids of `core`; `place` is freed when it is answered or given up.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the actor is gone.
    pub(crate) fn ask(
        &self,
        core: &Arc<Core>,
        question: impl Into<Question>,
        deadline: Time,
        place: Option<Place>,
    ) -> Result<Reply, ErrorKind> {
        let (answer, reply) = Reply::new(core, place);
        let question = question.into();
        self.send(Message::Request(Request { core: core.clone(), question, deadline, reply: answer }))?;
        Ok(reply)
    }

    /// Queues a message.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the message will never be read.
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

    /// Rejects messages from now on, and wakes the actor to end it. The first call determines how it ends.
    pub(crate) fn close(&self, ending: Ending) {
        if self.is_forked() {
            return;
        }
        self.inbox.lock().closed.get_or_insert(ending);
        self.wake.notify_one();
    }

    /// Whether messages are rejected.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_forked() || self.inbox.lock().closed.is_some()
    }

    /// Whether the actor has ended with its runtime.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.is_forked() && self.inbox.lock().closed == Some(Ending::Abandoned)
    }

    /// Whether this is a fork of the actor's process.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.is_another()
    }

    /// Takes all messages, and up to `most_low` signals: callers can signal as fast as the actor handles the
    /// signals, and must not delay timers, answers and messages.
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
        // The wake-ups of the remaining signals are used up: without this the actor would not handle them.
        self.wake.notify_one();
        low
    }

    /// Resolves once there was a signal, a message or a close since it last resolved.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }
}

#[cfg(all(test, not(idmill_loom)))]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::state::settings::Settings;

    #[test]
    fn a_forked_process_sends_and_receives_nothing() {
        let mailbox = Mailbox { process: Process::another(), ..Mailbox::new() };
        // The fork does not have the thread that held the lock.
        let _held = mailbox.inbox.lock();
        assert!(mailbox.is_closed());
        assert_eq!(
            mailbox.receive(1).ending,
            Some(Ending::Abandoned),
            "the fork's actor ends before it reserves"
        );
    }

    #[test]
    fn signals_beyond_the_limit_are_left_for_the_next_turn() {
        let mailbox = Arc::new(Mailbox::new());
        let settings = Arc::new(Settings::of::<u64>());
        let core = |()| Arc::new(Core::new("orders".parse().unwrap(), settings.clone()));
        let cores = [(); 5].map(core);
        for core in &cores {
            mailbox.signal(core);
        }
        let woken = || mailbox.woken().now_or_never().is_some();
        for (left, signals) in [(true, 2), (true, 2), (false, 1)] {
            assert!(woken(), "the actor is woken while signals are left");
            assert_eq!(mailbox.receive(2).low.len(), signals);
            assert_eq!(woken().then(|| mailbox.wake.notify_one()).is_some(), left);
        }
    }
}
