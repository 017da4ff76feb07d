//! A pending reply of the refill actor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::error::{ErrorKind, Result};
use crate::range::Ranges;
use crate::sequence::answer::{Answer, Place};
use crate::sequence::parts::{Core, Message, Question, Request};
use crate::sequence::time::Time;
use crate::sync::{Arc, oneshot};

/// The caller gives up by dropping the reply: ids that were already sent are counted as a gap.
pub(crate) struct Reply {
    receiver: oneshot::Receiver<Result<Ranges>>,
    core: Arc<Core>,
    /// Freed when this is dropped, or by the answer.
    _place: Option<Place>,
}

impl Reply {
    /// Queues a request for the actor; `place` is freed when it is answered or given up.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the actor is gone.
    pub(crate) fn ask(
        core: &Arc<Core>,
        question: impl Into<Question>,
        deadline: Time,
        place: Option<Place>,
    ) -> Result<Self, ErrorKind> {
        let (sender, receiver) = oneshot::channel();
        let reply = Answer::new(sender, place.clone());
        core.send(Message::Request(Request {
            core: core.clone(),
            question: question.into(),
            deadline,
            reply,
        }))?;
        Ok(Self { receiver, core: core.clone(), _place: place })
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
