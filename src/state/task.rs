//! Tasks on a runtime that may not be the caller's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle as RuntimeHandle;
use tokio::task::{JoinError, JoinHandle};

use crate::error::{Error, ErrorKind};

/// A task that is aborted when its waiter drops it.
pub(crate) struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(crate) fn spawn(runtime: &RuntimeHandle, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(runtime.spawn(work))
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the error of a call whose task ended without a result.
pub(crate) fn task_failed(failure: JoinError) -> Error {
    let message = if failure.is_panic() {
        "the store panicked; the request may have been applied"
    } else {
        "the runtime ended before the store answered"
    };
    Error::new(ErrorKind::UnknownOutcome, message).because(failure)
}
