//! Waiting for the actor: the way of the callers that find nothing in memory.
//!
//! A caller first takes one of a limited number of places, which bounds the mailbox; callers beyond that wait for a
//! place, in their own memory, first come, first served, and hear `Overloaded` if they get none in time.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Tenant;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::range::Ranges;

/// Waits for `want` ids (0: until there are some in memory) up to `patience`.
pub(super) async fn wait(tenant: Tenant, want: u64, patience: Duration) -> Result<Ranges> {
    let core = &tenant.core;
    let outcome = queue(&tenant, want, patience).await;
    outcome.map_err(|error| error.of(&core.name).during(Operation::Draw))
}

async fn queue(tenant: &Tenant, want: u64, patience: Duration) -> Result<Ranges> {
    let inner = &tenant.inner;
    let deadline = inner.clock.now() + patience;
    // Held until the reply is here or has been given up.
    let _place = match inner.places.clone().try_acquire_owned() {
        Ok(place) => place,
        Err(_) => place_by(tenant, patience).await?,
    };
    tenant.core.stats.add_waits(1);
    tenant.core.request(want, deadline)?.await
}

async fn place_by(tenant: &Tenant, patience: Duration) -> Result<OwnedSemaphorePermit> {
    let inner = &tenant.inner;
    let acquiring = inner.places.clone().acquire_owned();
    // The caller may run on another executor than tokio's: only making a timer needs its context.
    let acquired = {
        let _context = inner.runtime.enter();
        timeout(patience, acquiring)
    };
    match acquired.await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) => Err(ErrorKind::Closed.into()),
        Err(_) => Err(Error::new(
            ErrorKind::Overloaded,
            "all places to wait are taken; raise `max_waiting`, the step, or see why the store is slow",
        )),
    }
}
