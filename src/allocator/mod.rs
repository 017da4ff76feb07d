//! What callers hold: allocators, handles and leases of one sequence.

mod blocking;
mod handle;
mod local;
mod stripes;
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
use crate::mailbox::Time;
use crate::range::{Range, Ranges};
use crate::sequences::Inner;
use crate::settings::Order;
use crate::snapshot::Snapshot;
use crate::sync::Arc;

pub(crate) use blocking::block_on;
use blocking::block_on_reply;
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
/// Opened by [`Sequences::sequence`](crate::Sequences::sequence). Every method may be called from any thread. A call
/// that is cancelled (its future dropped) at any point is safe: at most the ids it would have had become a gap, and
/// are counted as one.
pub struct Allocator<T: Id = u64> {
    tenant: Tenant,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> Allocator<T> {
    pub(crate) fn new(tenant: Tenant) -> Self {
        Self { tenant, of: PhantomData }
    }

    fn core(&self) -> &Arc<Core> {
        &self.tenant.core
    }

    /// The next id, from memory; never waits, never locks, never allocates.
    ///
    /// # Errors
    /// [`ErrorKind::Dry`] if nothing is in memory right now (always, under [`Order::Global`]);
    /// [`ErrorKind::Exhausted`], which the store is asked about again every 30 s at most, and [`ErrorKind::Closed`] for good.
    #[allow(clippy::inline_always)] // a call, and the error type it returns by memory, cost as much as the draw
    #[inline(always)]
    pub fn try_next(&self) -> Result<T> {
        match self.draw_fast() {
            Some(id) => Ok(T::from_raw(id)),
            None => self.draw_on().map(T::from_raw).map_err(Error::from),
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

    /// The next id; ready at once and without an allocation while there are ids in memory, else as soon as the refill
    /// lands. First come, first served.
    ///
    /// # Errors
    /// [`ErrorKind::Deadline`] after the sequence's [`patience`](crate::SequenceBuilder::patience), with the store's
    /// last error as its source; [`ErrorKind::Overloaded`] if too many wait already; permanent errors of the
    /// store; [`ErrorKind::Exhausted`], [`ErrorKind::Closed`].
    #[inline]
    pub fn next(&self) -> Next<'_, T> {
        Next { allocator: self, waiting: None }
    }

    /// The next id, for threads outside any async runtime: waits up to `timeout`.
    ///
    /// Called on a thread of the very runtime that drives the refills, it can block the refill it waits for, until the
    /// timeout.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_blocking(&self, timeout: Duration) -> Result<T> {
        match self.draw() {
            Ok(id) => Ok(T::from_raw(id)),
            Err(ErrorKind::Dry) => {
                block_on_reply(self.wait(1, timeout), timeout).map(|ids| self.waited(&ids))
            }
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

    /// Exactly `n` ids, in growing order, in as few ranges as they lie in: usually one, several where the ranges
    /// reserved from the store end. None of them is handed out otherwise.
    ///
    /// Under [`Order::Thread`] they do not grow with the thread's other draws, which come from its own block.
    ///
    /// # Errors
    /// As [`next`](Self::next). Where the sequence ends with fewer than `n` ids, [`ErrorKind::Exhausted`]; those left
    /// stay for smaller draws. A call that fails or is cancelled after it had got some of its ids makes them a gap.
    pub async fn take(&self, n: u64) -> Result<Ranges<T>> {
        let mut begun = None;
        loop {
            let part = match self.take_from_memory(n) {
                Ok(ids) => return Ok(ids.cast()),
                Err(part) => part,
            };
            let left = self.left_of(self.patience(), &mut begun);
            let rest = self.wait(part.missing, left).await?;
            if let Some(ids) = part.and(rest) {
                return Ok(ids.cast());
            }
        }
    }

    /// [`take`](Self::take) for threads outside any async runtime; waits up to `timeout`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_blocking(&self, n: u64, timeout: Duration) -> Result<Ranges<T>> {
        let mut begun = None;
        loop {
            let part = match self.take_from_memory(n) {
                Ok(ids) => return Ok(ids.cast()),
                Err(part) => part,
            };
            let left = self.left_of(timeout, &mut begun);
            let rest = block_on_reply(self.wait(part.missing, left), left)?;
            if let Some(ids) = part.and(rest) {
                return Ok(ids.cast());
            }
        }
    }

    /// What is left of `patience` since this was first asked; a draw that need not wait never looks at the clock.
    fn left_of(&self, patience: Duration, begun: &mut Option<Time>) -> Duration {
        let now = self.tenant.inner.clock.now();
        patience.saturating_sub(now.saturating_sub(*begun.get_or_insert(now)))
    }

    /// `n` ids, or the part of them that there is.
    fn take_from_memory(&self, n: u64) -> Result<Ranges, Part<'_>> {
        if n == 0 {
            return Ok(Ranges::none());
        }
        let core = self.core();
        let generation = core.stock.generation();
        core.take(n).map_err(|short| Part { core, generation, missing: short.missing, ids: short.got })
    }

    fn patience(&self) -> Duration {
        self.core().settings.patience
    }

    /// Waits for the actor; owns all it needs, so that it outlives a borrow of the allocator.
    fn wait(&self, want: u64, patience: Duration) -> impl Future<Output = Result<Ranges>> + Send + use<T> {
        wait::wait(self.tenant.clone(), want, patience)
    }

    /// Waits until there are ids in memory, so that draws after this need not wait. Under [`Order::Global`] there
    /// never are, and this returns at once.
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

    /// A view for one thread that takes `size` ids for itself at a time, 1 to 2^48, and then draws at the speed of
    /// a plain increment. What it has left when dropped is a gap.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a size out of bounds, or unless the sequence's order is [`Order::Thread`]: ids
    /// of several leases do not grow across them.
    pub fn lease(&self, size: u64) -> Result<Lease<T>> {
        Lease::new(self.clone(), size)
    }

    /// Throws away every id in memory, for everybody in this process, at once: for use after something went
    /// wrong with the store. Returns how many ids that cost; leases add what they held when they next draw. When this returns,
    /// no draw that begins gets an id reserved before it was called.
    pub fn revoke(&self) -> u64 {
        self.core().revoke()
    }

    /// Counters, levels and estimates as of now. Cheap enough to be read every second.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.core())
    }

    /// The sequence's name.
    pub fn name(&self) -> &str {
        &self.core().name
    }

    fn sorry(&self, reason: ErrorKind) -> Error {
        Error::from(reason).of(&self.core().name).during(Operation::Draw)
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

/// What a `take` has while it waits for the rest: a gap if that cannot be had, or nobody waits for it any more.
struct Part<'a> {
    core: &'a Core,
    /// The stock's generation before it was taken.
    generation: u64,
    missing: u64,
    ids: Ranges,
}

impl Part<'_> {
    /// All that was wanted; `None`, and both a gap, if the sequence was revoked or reset meanwhile: the rest may be of
    /// another identity, and hold the same numbers.
    fn and(mut self, rest: Ranges) -> Option<Ranges> {
        if !self.ids.is_empty() && !self.core.stock.stands(self.generation) {
            self.core.stats.gap_dropped(rest.len());
            return None;
        }
        let mut all = std::mem::replace(&mut self.ids, Ranges::none());
        rest.into_iter().for_each(|range| all.push(range));
        Some(all)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.core.stats.gap_dropped(self.ids.len());
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
