//! A reply of the refill actor that is under way to a caller.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::core::Core;
use crate::error::{ErrorKind, Result};
use crate::range::Ranges;
use crate::sync::{Arc, oneshot};

/// Dropping it is giving up: ids that were sent meanwhile are counted as a gap.
pub(crate) struct Pending {
    receiver: oneshot::Receiver<Result<Ranges>>,
    core: Arc<Core>,
}

impl Pending {
    pub(crate) fn new(receiver: oneshot::Receiver<Result<Ranges>>, core: Arc<Core>) -> Self {
        Self { receiver, core }
    }
}

impl Future for Pending {
    type Output = Result<Ranges>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Ranges>> {
        // The actor answers everybody; dropping the question unanswered means that it is gone.
        let answer = ready!(Pin::new(&mut self.receiver).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| Err(ErrorKind::Closed.into())))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Cancelled after the reply was sent: its ids are nobody's now.
        self.receiver.close();
        if let Ok(Ok(ids)) = self.receiver.try_recv() {
            self.core.stats.gap_dropped(ids.len());
        }
    }
}
