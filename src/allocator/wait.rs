//! Waiting for the actor, for callers that find too few ids in memory.
//!
//! A caller first takes one of a limited number of places and keeps it until it is answered or gives up. This
//! bounds the mailbox. Further callers wait for a place outside the mailbox, in order, and get `Overloaded`
//! if none is free in time.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};
use tokio::time::timeout;

use super::CoreRef;
use crate::error::{Error, ErrorKind, Result};
use crate::range::Ranges;
use crate::state::mailbox::Question;
use crate::state::reply::{Place, Reply};
use crate::state::task::Task;
use crate::sync::Arc;

/// Waits for ids up to `timeout`.
pub(super) async fn wait(
    core_ref: Arc<CoreRef>,
    question: impl Into<Question>,
    timeout: Duration,
) -> Result<Ranges> {
    let outcome = queue(&core_ref, question.into(), timeout).await;
    outcome.map_err(|error| core_ref.draw_error(error))
}

async fn queue(core_ref: &CoreRef, question: Question, timeout: Duration) -> Result<Ranges> {
    let CoreRef { core, shared, .. } = core_ref;
    // Check for a fork before any wait or lock: the actor and the timers belong to the parent process.
    if shared.mailbox.is_forked() {
        return Err(ErrorKind::Closed.into());
    }
    let deadline = shared.clock.now().saturating_add(timeout);
    let (core, mailbox) = (core.clone(), shared.mailbox.clone());
    let ask = move |permit| {
        core.stats.add_waits(1);
        mailbox.ask(&core, question, deadline, Some(Place::new(permit)))
    };
    let reply = match shared.places.clone().try_acquire_owned() {
        Ok(permit) => ask(permit)?,
        Err(TryAcquireError::NoPermits) => ask_later(core_ref, timeout, ask).await?,
        Err(TryAcquireError::Closed) => return Err(ErrorKind::Closed.into()),
    };
    reply.await
}

/// Waits for a place, in a task on the actor's runtime. A caller that is not polled would otherwise block a
/// place that it was given, and a timer must not be polled after its runtime has ended.
async fn ask_later(
    core_ref: &CoreRef,
    limit: Duration,
    ask: impl FnOnce(OwnedSemaphorePermit) -> Result<Reply, ErrorKind> + Send + 'static,
) -> Result<Reply> {
    let (shared, places) = (&core_ref.shared, core_ref.shared.places.clone());
    let asked = Task::spawn(&shared.runtime, async move {
        match timeout(limit, places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(ask(permit)?),
            Ok(Err(_)) => Err(ErrorKind::Closed.into()),
            Err(_) => Err(Error::new(
                ErrorKind::Overloaded,
                "`max_waiting` callers are already waiting; raise `max_waiting` or the step, or check why \
                 the store is slow",
            )),
        }
    });
    match asked.await {
        Ok(outcome) if !shared.mailbox.is_closed() => outcome,
        // The actor was closed, or its runtime has ended.
        _ => Err(ErrorKind::Closed.into()),
    }
}
