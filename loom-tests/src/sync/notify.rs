//! One permit for one waiter, which is all that the crate uses of tokio's `Notify`.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::{AtomicBool, Ordering, Unseen};

#[derive(Debug)]
pub(crate) struct Notify {
    permit: AtomicBool,
    waiter: Unseen<Option<Waker>>,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self { permit: AtomicBool::new(false), waiter: Unseen::new(None) }
    }

    pub(crate) fn notify_one(&self) {
        // AcqRel, and a write even if there is a permit already: as in tokio, the waiter then sees all
        // earlier writes.
        self.permit.swap(true, Ordering::AcqRel);
        if let Some(waiter) = self.waiter.with(Option::take) {
            waiter.wake();
        }
    }

    /// Resolves with the permit. If the future is dropped before, it has not taken the permit.
    pub(crate) async fn notified(&self) {
        poll_fn(|context| {
            self.waiter.with(|waiter| *waiter = Some(context.waker().clone()));
            // Swap after the registration. A read-modify-write is never stale, so a later `notify_one` finds
            // the waiter.
            if self.permit.swap(false, Ordering::AcqRel) {
                self.waiter.with(Option::take);
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }
}
