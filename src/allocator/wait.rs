//! Waiting for the actor: the way of the callers that find nothing in memory.
//!
//! A caller first takes one of a limited number of places, which bounds the mailbox; callers beyond that wait for a
//! place, in their own memory, first come, first served, and hear `Overloaded` if they get none in time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Tenant;
use crate::core::Core;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::range::Ranges;
use crate::sync::{Arc, oneshot};

/// Waits for `want` ids (0: until there are some in memory) up to `patience`.
pub(super) async fn wait(tenant: Tenant, want: u64, patience: Duration) -> Result<Ranges> {
    let core = &tenant.core;
    let outcome = queue(&tenant, want, patience).await;
    outcome.map_err(|error| error.of(&core.name).during(Operation::Draw))
}

async fn queue(tenant: &Tenant, want: u64, patience: Duration) -> Result<Ranges> {
    let inner = &tenant.inner;
    let deadline = inner.clock.now() + patience;
    let place = match inner.places.clone().try_acquire_owned() {
        Ok(place) => place,
        Err(_) => place_by(tenant, patience).await?,
    };
    tenant.core.stats.add_waits(1);
    let receiver = tenant.core.request(want, deadline)?;
    Pending { receiver, core: tenant.core.clone(), _place: place }.await
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

/// The reply under way.
struct Pending {
    receiver: oneshot::Receiver<Result<Ranges>>,
    core: Arc<Core>,
    _place: OwnedSemaphorePermit,
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
