//! The answer to a waiting caller: the caller's end, the actor's end, and the place that both hold.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::error::{ErrorKind, Result};
use crate::range::Ranges;
use crate::state::core::Core;
use crate::sync::{Arc, Mutex, OwnedSemaphorePermit, oneshot, unless_it_panics};

/// The caller gives up by dropping the reply: ids that were already sent are counted as a gap.
pub(crate) struct Reply {
    receiver: oneshot::Receiver<Result<Ranges>>,
    core: Arc<Core>,
    /// Freed when this is dropped, or by the answer.
    _place: Option<Place>,
}

impl Reply {
    /// Creates both ends; `place` is freed when the answer is sent or given up.
    pub(crate) fn new(core: &Arc<Core>, place: Option<Place>) -> (Answer, Self) {
        let (sender, receiver) = oneshot::channel();
        let answer = Answer { sender: Some(sender), place: place.clone() };
        (answer, Self { receiver, core: core.clone(), _place: place })
    }
}

impl Future for Reply {
    type Output = Result<Ranges>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Ranges>> {
        // The actor answers every request; a request dropped without an answer means that the actor is gone.
        let answer = ready!(Pin::new(&mut self.receiver).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| Err(ErrorKind::Closed.into())))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // If the call was cancelled after the reply was sent, the ids of the reply are lost.
        self.receiver.close();
        if let Ok(Ok(ids)) = self.receiver.try_recv() {
            self.core.stats.gap_dropped(ids.len());
        }
    }
}

/// The sender of an answer. If it is dropped without an answer, the caller gets `Closed`. A waker that panics
/// affects only its own caller.
pub(crate) struct Answer {
    sender: Option<oneshot::Sender<Result<Ranges>>>,
    place: Option<Place>,
}

impl Answer {
    /// Whether the caller has given up.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Sends the answer; `false` if the caller has given up.
    pub(crate) fn send(mut self, outcome: Result<Ranges>) -> bool {
        // Free the place first: the caller may send another request as soon as it has its answer.
        self.place = None;
        let Some(sender) = self.sender.take() else { return false };
        // If the waker panics, the answer has already been sent.
        unless_it_panics(|| sender.send(outcome).is_ok()).unwrap_or(true)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let sender = self.sender.take();
        let _ = unless_it_panics(|| drop(sender));
    }
}

/// One of a limited number of places for waiting callers. The caller and the actor each have a clone, and the
/// first of the two to be dropped frees it. So an answered caller that is not polled does not block other
/// callers.
pub(crate) struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Place {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }
}

impl Clone for Place {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let permit = self.0.lock().take();
        // Not under the lock: dropping the permit wakes the next caller.
        drop(permit);
    }
}
