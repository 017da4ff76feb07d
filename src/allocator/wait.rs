//! Waiting for the actor: the path of callers that find nothing in memory.
//!
//! A caller first takes one of a limited number of places, which bounds the mailbox. Callers beyond that wait
//! for a place in their own memory, first come, first served, and get `Overloaded` if none is free in time.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};
use tokio::time::sleep;

use super::Tenant;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::range::Ranges;
use crate::sequence::process::forked;
use crate::sequence::reply::Reply;
use crate::sequence::task::Task;

/// Waits for `want` ids (0: until there are some in memory) up to `patience`.
pub(super) async fn wait(tenant: Tenant, want: u64, patience: Duration) -> Result<Ranges> {
    let core = &tenant.core;
    let outcome = queue(&tenant, want, patience).await;
    outcome.map_err(|error| error.of(&core.name).during(Operation::Draw))
}

async fn queue(tenant: &Tenant, want: u64, patience: Duration) -> Result<Ranges> {
    let shared = &tenant.shared;
    // Before it waits for a place, or locks anything: the actor and the timers are the parent's.
    if shared.mailbox.is_forked() {
        return Err(forked());
    }
    let deadline = shared.clock.now().saturating_add(patience);
    // Held until the reply is here or has been given up.
    let _place = match shared.places.clone().try_acquire_owned() {
        Ok(place) => place,
        Err(TryAcquireError::NoPermits) => place_by(tenant, patience).await?,
        Err(TryAcquireError::Closed) => return Err(ErrorKind::Closed.into()),
    };
    tenant.core.stats.add_waits(1);
    Reply::ask(&tenant.core, want, deadline)?.await
}

async fn place_by(tenant: &Tenant, patience: Duration) -> Result<OwnedSemaphorePermit> {
    let shared = &tenant.shared;
    let acquiring = pin!(shared.places.clone().acquire_owned());
    // The timer is the actor's, as the clock is, and sleeps in a task there: polled here, on another thread
    // or executor, it would panic where its runtime ends meanwhile.
    let late = Task::spawn(&shared.runtime, async move { sleep(patience).await });
    match select(acquiring, late).await {
        Either::Left((Ok(place), _)) => Ok(place),
        Either::Right((Ok(()), _)) if !shared.mailbox.is_closed() => Err(Error::new(
            ErrorKind::Overloaded,
            "all places to wait are taken; raise `max_waiting`, the step, or see why the store is slow",
        )),
        // Nobody gives places any more, or the runtime has ended, and the timer with it.
        _ => Err(ErrorKind::Closed.into()),
    }
}
