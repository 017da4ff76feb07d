//! Waiting on a thread that has no async runtime, or that must not give up its own.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::sync::{Parker, Unparker};
use tokio::runtime::{Handle as RuntimeHandle, RuntimeFlavor};
use tokio::task::{self, coop};

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, unless_it_panics};

struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How much longer than its deadline a caller waits for the actor, whose error is better.
const GRACE: Duration = Duration::from_millis(50);

/// Waits for the actor's reply until the deadline, or until shortly after it if the actor's runtime is kept
/// from running.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] at once, naming the method to use `instead`, if this is the thread that would
/// have to produce the reply.
pub(crate) fn block_on_reply<T>(
    runtime: &RuntimeHandle,
    instead: &str,
    reply: impl Future<Output = Result<T>>,
    timeout: Duration,
) -> Result<T> {
    if would_wait_for_itself(runtime) {
        let message = format!(
            "this thread drives the refills, and would wait for itself for ever; use {instead}, or \
             `SequencesBuilder::own_thread`"
        );
        return Err(Error::invalid(message));
    }
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
    // In a task, each poll costs a step of the task's budget; whoever has used it up is woken when the task
    // has ended, and this thread is in it.
    let mut future = pin!(coop::unconstrained(future));
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

/// Returns whether this runtime has no thread but this one to make progress on.
fn would_wait_for_itself(runtime: &RuntimeHandle) -> bool {
    if !RuntimeHandle::try_current().is_ok_and(|current| current.id() == runtime.id()) {
        return false;
    }
    let only = match runtime.runtime_flavor() {
        RuntimeFlavor::CurrentThread => true,
        // A task is on a worker's thread; what a runtime blocks on is not.
        _ => runtime.metrics().num_workers() == 1 && task::try_id().is_some(),
    };
    only && (is_in_a_poll() || refuses_to_block(runtime))
}

/// Returns whether a runtime is in the middle of a poll on this thread. A thread for blocking work, or one
/// that has entered a runtime, belongs to that runtime too but does not drive it: it has no budget of steps
/// that could run out.
fn is_in_a_poll() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    // tokio counts the steps of a budget in a byte. The poll that this one is in yields
    // the earlier for it, no more.
    (0..=u8::MAX).any(|_| pin!(coop::consume_budget()).poll(&mut context).is_pending())
}

/// Returns whether tokio refuses to block on this thread: a poll without a budget, as in `task::unconstrained`,
/// shows in nothing else. It refuses by a panic, whose message may be printed.
fn refuses_to_block(runtime: &RuntimeHandle) -> bool {
    unless_it_panics(|| runtime.block_on(async {})).is_none()
}
