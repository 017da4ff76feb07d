//! The actor's calls to the store: reserves, give-backs and raises in flight.
//!
//! The store's work runs in separate tasks. A task that blocks its thread blocks the actor only if there is
//! no other thread. A task that panics, even while it is dropped, ends only itself.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle as RuntimeHandle;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::driver::PendingGiveBack;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::state::clock::Clock;
use crate::state::core::Core;
use crate::state::metrics;
use crate::state::task::{Task, task_failed};
use crate::store::{Change, Grant, Reserve, Store};
use crate::sync::Arc;

/// One round trip to the store. It holds its cores, so that an answer reaches no other core.
pub(super) struct RoundTrip {
    call: Pin<Box<dyn Future<Output = Landed> + Send>>,
    /// Whether it gives unused ids back.
    gives_back: bool,
}

/// The result of a round trip.
pub(super) enum Landed {
    /// Reserves were answered.
    Answers(Vec<(Arc<Core>, Result<Grant>)>),
    /// The give-back of unused ids of these sequences has ended, with any outcome.
    Returned(Vec<Arc<Core>>),
    /// The raise of a sequence's `next` has ended, with any outcome.
    Raised(Arc<Core>),
}

impl RoundTrip {
    fn of(call: impl Future<Output = Landed> + Send + 'static) -> Self {
        Self { call: Box::pin(call), gives_back: false }
    }

    /// Whether this gives unused ids back.
    pub(super) fn gives_back(&self) -> bool {
        self.gives_back
    }

    /// Sends reserves; the store's work runs on `runtime`. Await it on the runtime whose timers enforce the
    /// limit.
    pub(super) fn reserve(
        runtime: &RuntimeHandle,
        store: Arc<dyn Store>,
        reserves: Vec<(Arc<Core>, Reserve)>,
        limit: Duration,
    ) -> Self {
        let (cores, requests): (Vec<_>, Vec<_>) = reserves.into_iter().unzip();
        let task = Task::spawn(runtime, ask(store, requests));
        Self::of(async move {
            let mut answers = match timeout(limit, task).await {
                Ok(Ok(answers)) => answers,
                Ok(Err(failure)) => vec![Err(task_failed(failure)); cores.len()],
                Err(_) => vec![Err(timed_out(limit)); cores.len()],
            };
            // The outcome of a reserve without an answer is unknown.
            answers.resize_with(cores.len(), || Err(miscounted()));
            let answers =
                answers.into_iter().map(|answer| answer.map_err(|error| error.during(Operation::Reserve)));
            Landed::Answers(cores.into_iter().zip(answers).collect())
        })
    }

    /// Raises `next` above the known ids, after the store went back in time.
    pub(super) fn raise(
        runtime: &RuntimeHandle,
        store: Arc<dyn Store>,
        core: Arc<Core>,
        change: Change,
        limit: Duration,
    ) -> Self {
        let (name, next) = (core.name.clone(), change.next);
        let task = Task::spawn(runtime, async move { store.set(&name, change).await });
        Self::of(async move {
            let sequence = &core.name;
            match timeout(limit, task).await {
                Ok(Ok(Ok(_))) => tracing::error!(%sequence, next, "the store went back in time: raised next"),
                // The error is a conflict if another process has raised `next` further.
                Ok(Ok(Err(error))) => {
                    tracing::error!(%sequence, next, %error, "the store may have gone back in time: raising the next id failed");
                }
                Ok(Err(_)) | Err(_) => {
                    tracing::error!(%sequence, next, "the store went back in time: the next id may have been raised");
                }
            }
            Landed::Raised(core)
        })
    }

    /// Gives back ids above the memory limit, or of evicted sequences. Callers wait for this only at the end
    /// of the sequence.
    pub(super) fn give_back(
        runtime: RuntimeHandle,
        store: Arc<dyn Store>,
        rests: Vec<PendingGiveBack>,
        limit: Duration,
        clock: Clock,
    ) -> Self {
        let call = async move {
            let cores: Vec<_> = rests.iter().map(|rest| rest.core().clone()).collect();
            let _ = timeout(limit, give_back(&runtime, store, rests)).await;
            for core in &cores {
                metrics::record(core, clock.now());
            }
            Landed::Returned(cores)
        };
        Self { gives_back: true, ..Self::of(call) }
    }

    /// Drops ids that the store does not take back.
    pub(super) fn of_lost(rest: PendingGiveBack) -> Self {
        let core = rest.core().clone();
        drop(rest);
        Self::of(async { Landed::Returned(vec![core]) })
    }
}

impl Future for RoundTrip {
    type Output = Landed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Landed> {
        self.call.as_mut().poll(cx)
    }
}

async fn ask(store: Arc<dyn Store>, requests: Vec<Reserve>) -> Vec<Result<Grant>> {
    let ids = requests.iter().fold(0_u64, |sum, request| sum.saturating_add(request.count));
    // `otel.status_code` marks a failed span in OpenTelemetry.
    let span = tracing::debug_span!(
        "reserve",
        sequences = requests.len(),
        ids,
        otel.status_code = tracing::field::Empty
    );
    let asked = async {
        match requests.as_slice() {
            [request] => vec![store.reserve(request).await],
            _ => store.reserve_many(&requests).await,
        }
    };
    let answers = asked.instrument(span.clone()).await;
    if answers.iter().any(Result::is_err) {
        span.record("otel.status_code", "ERROR");
    }
    answers
}

/// Sends one request, which is never retried.
pub(super) async fn give_back(runtime: &RuntimeHandle, store: Arc<dyn Store>, rests: Vec<PendingGiveBack>) {
    let backs: Vec<_> = rests.iter().map(|ids| ids.back().clone()).collect();
    let asked = Task::spawn(runtime, async move {
        match backs.as_slice() {
            [back] => vec![store.give_back(back).await],
            _ => store.give_back_many(&backs).await,
        }
    });
    let failed = |failure| vec![Err(task_failed(failure)); rests.len()];
    let mut outcomes = asked.await.unwrap_or_else(failed);
    outcomes.resize_with(rests.len(), || Err(miscounted()));
    for (ids, outcome) in rests.into_iter().zip(outcomes) {
        note_give_back(ids, outcome);
    }
}

fn note_give_back(ids: PendingGiveBack, outcome: Result<bool>) {
    let (sequence, rest) = (&ids.back().name, ids.back().rest);
    match outcome {
        Ok(true) => {
            tracing::debug!(%sequence, ?rest, "returned the unused ids");
            ids.returned();
        }
        Ok(false) => {
            tracing::debug!(%sequence, ?rest, "unused ids became a gap: later ids were reserved, or the sequence was reset");
        }
        Err(error) => {
            tracing::warn!(%sequence, ?rest, %error, "unused ids count as a gap: giving them back failed");
        }
    }
}

fn timed_out(limit: Duration) -> Error {
    let message = format!("the store did not answer within {limit:?}; it may have reserved ids");
    Error::new(ErrorKind::UnknownOutcome, message)
}

fn miscounted() -> Error {
    Error::new(ErrorKind::UnknownOutcome, "the store answered a batch with the wrong number of results")
}
