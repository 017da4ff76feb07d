//! Waiting on a thread that has no async runtime.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::sync::{Parker, Unparker};

use crate::error::{ErrorKind, Result};
use crate::sync::Arc;

struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How much longer than its deadline a caller waits for the actor, which has the better error for it.
const GRACE: Duration = Duration::from_millis(50);

/// Waits for a reply of the actor, which comes by the deadline; or, should the actor be kept from running (by this very
/// thread, say), until shortly after it.
pub(super) fn block_on_reply<T>(reply: impl Future<Output = Result<T>>, timeout: Duration) -> Result<T> {
    let deadline = Instant::now().checked_add(timeout.saturating_add(GRACE));
    block_until(reply, deadline).unwrap_or_else(|| Err(ErrorKind::Deadline.into()))
}

/// Parks this thread until the future is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_until(future, None).expect("waits without a deadline")
}

fn block_until<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let parker = Parker::new();
    let waker = Waker::from(Arc::new(Unpark(parker.unparker().clone())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match deadline {
            Some(deadline) if Instant::now() >= deadline => return None,
            Some(deadline) => parker.park_deadline(deadline),
            None => parker.park(),
        }
    }
}
