//! The actor's end of a request, with the caller's place.

use crate::error::Result;
use crate::range::Ranges;
use crate::sync::{Arc, Mutex, OwnedSemaphorePermit, oneshot, unless_it_panics};

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

/// The sender of an answer. If it is dropped without an answer, the caller gets `Closed`. A waker that panics
/// affects only its own caller.
pub(crate) struct Answer {
    sender: Option<oneshot::Sender<Result<Ranges>>>,
    place: Option<Place>,
}

impl Answer {
    pub(crate) fn new(sender: oneshot::Sender<Result<Ranges>>, place: Option<Place>) -> Self {
        Self { sender: Some(sender), place }
    }

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
