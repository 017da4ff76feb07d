//! What callers hold: allocators, handles and leases of one sequence.

mod blocking;
mod handle;
mod local;
mod seat;
mod stripes;
mod take;
mod wait;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::core::Core;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::range::{Range, Ranges};
use crate::sequences::Inner;
use crate::settings::Order;
use crate::snapshot::Snapshot;
use crate::sync::Arc;

pub(crate) use blocking::{block_on, block_on_reply};
pub use handle::{Handle, Lease};
pub(crate) use stripes::Stripes;

/// One user of a core: keeps it from being evicted, and the actor alive.
pub(crate) struct Tenant {
    pub(crate) core: Arc<Core>,
    pub(crate) inner: Arc<Inner>,
}

impl Tenant {
    /// For a core that counts this user already.
    pub(crate) fn new(core: Arc<Core>, inner: Arc<Inner>) -> Self {
        Self { core, inner }
    }
}

impl Clone for Tenant {
    fn clone(&self) -> Self {
        // Cannot fail: this user keeps it from being evicted.
        self.core.enter();
        Self { core: self.core.clone(), inner: self.inner.clone() }
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.core.leave();
    }
}

/// Hands out the ids of one sequence. Cheap to clone; shared by as many threads and tasks as you like.
///
/// Opened by [`Sequences::sequence`](crate::Sequences::sequence). Every method may be called from any thread.
/// A call that is cancelled (its future dropped) at any point is safe: at most the ids it would have had
/// become a gap, and are counted as one.
pub struct Allocator<T: Id = u64> {
    tenant: Tenant,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> Allocator<T> {
    pub(crate) fn new(tenant: Tenant) -> Self {
        Self { tenant, of: PhantomData }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.tenant.core
    }

    /// The next id, from memory; never waits, never locks, never allocates. Where there
    /// is none, that starts a refill.
    ///
    /// # Errors
    /// [`ErrorKind::Dry`] if nothing is in memory right now (always, under [`Order::Global`]);
    /// [`ErrorKind::Exhausted`], which the store is asked about again every 30 s at most, and
    /// [`ErrorKind::Closed`] for good.
    #[allow(clippy::inline_always)] // a call, and the error type it returns by memory, cost as much as the draw
    #[inline(always)]
    pub fn try_next(&self) -> Result<T> {
        match self.draw_fast() {
            Some(id) => Ok(T::from_raw(id)),
            None => self.draw_on().map(T::from_raw).map_err(|reason| self.core().refused(reason)),
        }
    }

    /// The next id, where that takes no more than an instruction or two.
    #[allow(clippy::inline_always)] // two small bodies, of which a caller's branch predictor sees one
    #[inline(always)]
    fn draw_fast(&self) -> Option<u64> {
        match &self.core().stripes {
            None => local::draw(self.core()),
            Some(stripes) => stripes.draw(self.core()),
        }
    }

    /// The next id from memory, however it is to be had. Apart from [`draw_fast`](Self::draw_fast), so that
    /// the compiler keeps that small.
    #[cold]
    #[inline(never)]
    fn draw_on(&self) -> Result<u64, ErrorKind> {
        match &self.core().stripes {
            None => local::draw_on(self.core()),
            Some(stripes) => stripes.draw_on(self.core()),
        }
    }

    #[inline]
    fn draw(&self) -> Result<u64, ErrorKind> {
        match self.draw_fast() {
            Some(id) => Ok(id),
            None => self.draw_on(),
        }
    }

    /// The next id; ready at once and without an allocation while there are ids in memory, else as soon as
    /// the refill lands. First come, first served.
    ///
    /// # Errors
    /// [`ErrorKind::Deadline`] after the sequence's [`patience`](crate::SequenceBuilder::patience), with the
    /// store's last error as its source; [`ErrorKind::Overloaded`] if too many wait already; permanent errors
    /// of the store; [`ErrorKind::Exhausted`], [`ErrorKind::Closed`].
    #[inline]
    pub fn next(&self) -> Next<'_, T> {
        Next { allocator: self, waiting: None }
    }

    /// The next id, for threads outside any async runtime: waits up to `timeout`.
    ///
    /// Called on a worker of the very runtime that drives the refills, it can block the refill it
    /// waits for, until the timeout.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`ErrorKind::InvalidInput`] where it had to wait for the very thread it is
    /// called on: in async code of a runtime that drives the refills and has no other thread.
    pub fn next_blocking(&self, timeout: Duration) -> Result<T> {
        match self.draw() {
            Ok(id) => Ok(T::from_raw(id)),
            Err(ErrorKind::Dry) => self.wait_blocking("`next`", 1, timeout).map(|ids| self.waited(&ids)),
            Err(reason) => Err(self.sorry(reason)),
        }
    }

    /// The one id of a reply.
    #[cold]
    fn waited(&self, ids: &Ranges) -> T {
        let id = first::<T>(ids);
        if let Some(stripes) = &self.core().stripes {
            stripes.catch_up(self.core(), id.into_raw());
        }
        id
    }

    fn patience(&self) -> Duration {
        self.core().settings.patience
    }

    /// Waits for the actor; owns all it needs, so that it outlives a borrow of the allocator.
    fn wait(&self, want: u64, patience: Duration) -> impl Future<Output = Result<Ranges>> + Send + use<T> {
        wait::wait(self.tenant.clone(), want, patience)
    }

    /// [`wait`](Self::wait) on this thread; whoever cannot do that is told what to use `instead`.
    fn wait_blocking(&self, instead: &str, want: u64, timeout: Duration) -> Result<Ranges> {
        self.on_reply(instead, self.wait(want, timeout), timeout)
    }

    fn on_reply(
        &self,
        instead: &str,
        reply: impl Future<Output = Result<Ranges>>,
        timeout: Duration,
    ) -> Result<Ranges> {
        let outcome = block_on_reply(&self.tenant.inner.runtime, instead, reply, timeout);
        outcome.map_err(|error| error.of(&self.core().name).during(Operation::Draw))
    }

    /// Waits until there are ids in memory, so that draws after this need not wait. Under [`Order::Global`]
    /// there never are, and this returns at once.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn warm(&self) -> Result<()> {
        if self.core().settings.order == Order::Global || self.core().stock.remaining() > 0 {
            return Ok(());
        }
        self.wait(0, self.patience()).await.map(drop)
    }

    /// A view for one thread, which draws at the speed of the bare instruction.
    pub fn handle(&self) -> Handle<T> {
        Handle::new(self.clone())
    }

    /// A view for one thread that takes `size` ids for itself at a time, 1 to 2^48, and then draws at the
    /// speed of a plain increment. What it has left when dropped is a gap.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a size out of bounds, or unless the sequence's order is
    /// [`Order::Thread`]: ids of several leases do not grow across them.
    pub fn lease(&self, size: u64) -> Result<Lease<T>> {
        Lease::new(self.clone(), size)
    }

    /// Throws away every id in memory, for everybody in this process, at once: for use after something went
    /// wrong with the store. Returns how many ids that cost, with those that threads held for themselves;
    /// leases add what they held when they next draw. When this returns, no draw that begins gets an id
    /// reserved before it was called.
    pub fn revoke(&self) -> u64 {
        self.core().revoke()
    }

    /// Counters, levels and estimates as of now. Cheap enough to be read every second.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.core(), self.tenant.inner.clock.now())
    }

    /// The sequence's name.
    pub fn name(&self) -> &str {
        &self.core().name
    }

    fn sorry(&self, reason: ErrorKind) -> Error {
        let error = if self.core().stock.is_forked() {
            let message = "this process was forked from the one that opened the sequence; connect to the store again in it";
            Error::new(reason, message)
        } else {
            Error::from(reason)
        };
        error.of(&self.core().name).during(Operation::Draw)
    }
}

impl<T: Id> Clone for Allocator<T> {
    fn clone(&self) -> Self {
        Self::new(self.tenant.clone())
    }
}

impl<T: Id> fmt::Debug for Allocator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("name", &self.core().name).finish_non_exhaustive()
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<Ranges>> + Send>>;

/// The future of [`Allocator::next`]. Dropping it before it is ready costs at most one id, counted as a gap.
#[must_use = "futures do nothing unless awaited"]
pub struct Next<'a, T: Id> {
    allocator: &'a Allocator<T>,
    waiting: Option<Waiting>,
}

impl<T: Id> Future for Next<'_, T> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if self.waiting.is_none()
            && let Some(id) = self.allocator.draw_fast()
        {
            return Poll::Ready(Ok(T::from_raw(id)));
        }
        self.poll_on(cx)
    }
}

impl<T: Id> Next<'_, T> {
    #[cold]
    #[inline(never)]
    fn poll_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let allocator = self.allocator;
        if self.waiting.is_none() {
            match allocator.draw_on() {
                Ok(id) => return Poll::Ready(Ok(T::from_raw(id))),
                Err(ErrorKind::Dry) => {}
                Err(reason) => return Poll::Ready(Err(allocator.sorry(reason))),
            }
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(allocator.wait(1, allocator.patience())));
        let ids = ready!(waiting.as_mut().poll(cx))?;
        Poll::Ready(Ok(self.allocator.waited(&ids)))
    }
}

impl<T: Id> fmt::Debug for Next<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("waiting", &self.waiting.is_some()).finish_non_exhaustive()
    }
}

/// The one id of a reply to somebody who wanted one.
fn first<T: Id>(ids: &Ranges) -> T {
    let id = ids.as_slice().first().and_then(Range::first);
    T::from_raw(id.expect("the engine answers with as many ids as were wanted"))
}
