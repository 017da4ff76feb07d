//! Calls that block their thread, inside or outside an async runtime.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::sync::{Parker, Unparker};
use tokio::runtime::{Handle as RuntimeHandle, RuntimeFlavor};
use tokio::task::{self, coop};

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, unless_it_panics};

/// A view whose calls block the thread; the corresponding calls of the viewed object are async and have the
/// same timeout.
///
/// ```
/// use idmill::store::MemoryStore;
///
/// let ids = idmill::Sequences::new(MemoryStore::new())?;
/// let orders = ids.sequence::<u64>("orders").open_blocking()?;
/// assert_eq!(orders.blocking().next()?, 1);
/// assert!(ids.admin().blocking().inspect("orders")?.is_some());
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// In async code of a runtime that drives the refills and has no other thread, each call that must wait
/// immediately fails with [`InvalidInput`](crate::ErrorKind::InvalidInput); the error names the method to
/// use. On a worker of a multi-threaded runtime that drives the refills, a call can block its own refill
/// until the call's timeout.
#[derive(Debug)]
#[must_use = "a view does nothing itself; call one of its methods"]
pub struct Blocking<V> {
    pub(crate) of: V,
}

struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Extra time after the deadline, so that the actor's more precise error can arrive first.
const GRACE: Duration = Duration::from_millis(50);

/// Waits for the actor's reply until the deadline plus [`GRACE`]; the wait lasts that long only if the
/// actor's runtime does not run.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`] without waiting if this thread would have to produce the reply. The
/// message names the method to use `instead`.
pub(crate) fn block_on_reply<T>(
    runtime: &RuntimeHandle,
    instead: &str,
    reply: impl Future<Output = Result<T>>,
    timeout: Duration,
) -> Result<T> {
    if would_wait_for_itself(runtime) {
        let message = format!(
            "this thread drives the refills, so it cannot block on them; use the async {instead}, or \
             `SequencesBuilder::own_thread`"
        );
        return Err(Error::invalid(message));
    }
    let deadline = Instant::now().checked_add(timeout.saturating_add(GRACE));
    let wait = || block_until(reply, deadline).unwrap_or_else(|| Err(ErrorKind::Deadline.into()));
    // A worker must pass its queue on: a task that it wakes, such as the actor, would otherwise stay in its
    // slot for the next task, which no other worker takes from.
    if is_worker() { task::block_in_place(wait) } else { wait() }
}

/// Parks this thread until the future is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_until(future, None).expect("waits without a deadline")
}

fn block_until<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let parker = Parker::new();
    let waker = Waker::from(Arc::new(Unpark(parker.unparker().clone())));
    let mut context = Context::from_waker(&waker);
    // Each poll inside a task uses the task's budget. Once that is used up, the future is only woken when the
    // task yields, but the task is blocked here.
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

/// Returns whether this thread is the only one that can make progress on this runtime.
fn would_wait_for_itself(runtime: &RuntimeHandle) -> bool {
    if !RuntimeHandle::try_current().is_ok_and(|current| current.id() == runtime.id()) {
        return false;
    }
    let only = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
    only && (is_in_a_poll() || refuses_to_block(runtime))
}

/// Whether this thread runs a task of a multi-thread runtime that lets the task block in place.
fn is_worker() -> bool {
    let is_multi = |current: RuntimeHandle| current.runtime_flavor() == RuntimeFlavor::MultiThread;
    // The future passed to the runtime's own `block_on` is not a task. A `LocalSet` refuses by a panic, whose
    // message may be printed; its thread is not a worker.
    task::try_id().is_some()
        && RuntimeHandle::try_current().is_ok_and(is_multi)
        && unless_it_panics(|| task::block_in_place(|| ())).is_some()
}

/// Returns whether a runtime is polling on this thread. A `spawn_blocking` thread, or one that has only
/// entered a runtime, drives no tasks: it has no budget that can run out.
fn is_in_a_poll() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    // tokio counts the budget in a byte. This loop uses the budget up, so the surrounding poll yields
    // earlier; there is no other effect.
    (0..=u8::MAX).any(|_| pin!(coop::consume_budget()).poll(&mut context).is_pending())
}

/// Returns whether tokio refuses to block on this thread. A poll without a budget, as in
/// `task::unconstrained`, can only be detected this way. tokio refuses by a panic, whose message may be
/// printed.
fn refuses_to_block(runtime: &RuntimeHandle) -> bool {
    unless_it_panics(|| runtime.block_on(async {})).is_none()
}
