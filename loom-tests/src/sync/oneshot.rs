//! tokio's `oneshot`, with the same state bits and orderings.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{AtomicUsize, Ordering, Unseen};

/// The receiver waits for the value.
const WAITING: usize = 1;
/// The value was sent, or the sender was dropped.
const COMPLETE: usize = 2;
/// The receiver was closed or dropped.
const CLOSED: usize = 4;

#[derive(Debug)]
struct Channel<T> {
    state: AtomicUsize,
    value: Unseen<Option<T>>,
    waiter: Unseen<Option<Waker>>,
}

/// No value was sent yet, or at all.
#[derive(Debug)]
pub(crate) struct Nothing;

#[derive(Debug)]
pub(crate) struct Sender<T>(Option<Arc<Channel<T>>>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Channel<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = AtomicUsize::new(0);
    let channel = Arc::new(Channel { state, value: Unseen::new(None), waiter: Unseen::new(None) });
    (Sender(Some(channel.clone())), Receiver(channel))
}

impl<T> Sender<T> {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.as_ref().is_some_and(|channel| channel.state.load(Ordering::Acquire) & CLOSED != 0)
    }

    pub(crate) fn send(mut self, value: T) -> Result<(), T> {
        let Some(channel) = self.0.take() else { return Err(value) };
        channel.value.with(|place| *place = Some(value));
        if channel.complete() {
            return Ok(());
        }
        Err(channel.value.with(Option::take).expect("only the sender takes the value of a closed channel"))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if let Some(channel) = self.0.take() {
            channel.complete();
        }
    }
}

impl<T> Channel<T> {
    /// Wakes the receiver. Returns `false` if the channel was closed.
    fn complete(&self) -> bool {
        let mut state = 0;
        while let Err(actual) =
            self.state.compare_exchange(state, state | COMPLETE, Ordering::AcqRel, Ordering::Acquire)
        {
            if actual & CLOSED != 0 {
                return false;
            }
            state = actual;
        }
        if let Some(waiter) = self.waiter.with(Option::take) {
            waiter.wake();
        }
        true
    }

    fn received(&self) -> Result<T, Nothing> {
        self.value.with(Option::take).ok_or(Nothing)
    }
}

impl<T> Receiver<T> {
    pub(crate) fn close(&mut self) {
        self.0.state.fetch_or(CLOSED, Ordering::Acquire);
    }

    pub(crate) fn try_recv(&mut self) -> Result<T, Nothing> {
        if self.0.state.load(Ordering::Acquire) & COMPLETE == 0 {
            return Err(Nothing);
        }
        self.0.received()
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Nothing>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.waiter.with(|waiter| *waiter = Some(context.waker().clone()));
        let state = self.0.state.fetch_or(WAITING, Ordering::AcqRel);
        if state & (COMPLETE | CLOSED) != 0 {
            return Poll::Ready(self.0.received());
        }
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.close();
    }
}
