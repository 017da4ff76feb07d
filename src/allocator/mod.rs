//! Allocators and handles of one sequence.

mod handle;
mod local;
mod shared;
mod take;
mod wait;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::blocking::{Blocking, block_on_reply};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::range::Ranges;
use crate::state::core::Core;
use crate::state::mailbox::Mailbox;
use crate::state::settings::{CallLimits, Order};
use crate::state::snapshot::Snapshot;
use crate::state::want::Want;
use crate::sync::Arc;

pub use handle::Handle;
pub(crate) use shared::{CoreRef, Shared};

/// Hands out the ids of one sequence. Cheap to clone; any number of threads and tasks may share it.
///
/// Open one with [`Sequences::sequence`](crate::Sequences::sequence). All methods can be called from any
/// thread. A call can be cancelled at any point by dropping its future: at most the ids that it would have
/// returned become a gap, which is counted.
pub struct Allocator<T: Id = i64> {
    core_ref: Arc<CoreRef>,
    limits: CallLimits,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> Allocator<T> {
    pub(crate) fn new(core_ref: CoreRef, limits: CallLimits) -> Self {
        Self { core_ref: Arc::new(core_ref), limits, of: PhantomData }
    }

    /// Returns a clone whose calls wait at most this long, instead of the sequence's
    /// [`timeout`](crate::SequenceBuilder::timeout). For a single call:
    /// `orders.within(Duration::from_millis(50)).next().await`. So do its [handles](Self::handle).
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { limits: CallLimits { timeout, ..self.limits }, ..self.clone() }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core_ref.core
    }

    fn mailbox(&self) -> &Mailbox {
        &self.core_ref.shared.mailbox
    }

    /// Returns the next id from memory; never waits for the store. It neither locks nor allocates while the
    /// thread's cache holds ids, except at the watermark. If memory holds no ids, this starts a refill,
    /// except under [`Order::Global`].
    ///
    /// # Errors
    /// [`ErrorKind::Empty`] if memory holds no ids, as always under [`Order::Global`];
    /// [`ErrorKind::Exhausted`], after which the store is queried again at most every 30 s;
    /// [`ErrorKind::Closed`], permanently.
    #[allow(clippy::inline_always)] // a call that returns its error through memory costs as much as the draw
    #[inline(always)]
    pub fn try_next(&self) -> Result<T> {
        match self.draw() {
            Ok(id) => Ok(T::from_raw(id)),
            Err(reason) => Err(self.core_ref.refused(reason)),
        }
    }

    #[allow(clippy::inline_always)] // as `try_next`
    #[inline(always)]
    fn draw(&self) -> Result<u64, ErrorKind> {
        match self.draw_fast() {
            Some(id) => Ok(id),
            None => self.draw_slow(),
        }
    }

    /// Returns the next id if a cached segment or block has one.
    #[allow(clippy::inline_always)] // two small bodies; a caller needs one, so the branch is predicted
    #[inline(always)]
    fn draw_fast(&self) -> Option<u64> {
        match &self.core_ref.blocks {
            None => local::draw(&self.core_ref),
            Some(blocks) => blocks.draw(&self.core().stock),
        }
    }

    /// Returns the next id from memory, and refreshes the cached segment or block. Separate from
    /// [`draw_fast`](Self::draw_fast), so that the compiler keeps that function small.
    #[cold]
    #[inline(never)]
    fn draw_slow(&self) -> Result<u64, ErrorKind> {
        match &self.core_ref.blocks {
            None => local::draw_slow(&self.core_ref),
            Some(blocks) => self.core().draw_by_thread(blocks, self.mailbox()),
        }
    }

    /// Returns the next id. While memory holds ids, the future is ready immediately; it allocates at most the
    /// thread's cache. Otherwise it is ready when the refill completes. Callers are served in the order in
    /// which they started to wait.
    ///
    /// A loop of draws that are all ready never yields to other tasks. On a current-thread runtime it keeps
    /// the refill from starting until memory is empty: call `tokio::task::yield_now` now and then, or use
    /// [`own_thread`](crate::SequencesBuilder::own_thread).
    ///
    /// The deadline is a timer of the runtime that drives the refills. While that runtime does not run, for
    /// example between two `block_on` calls on a current-thread runtime, a call on another executor can wait
    /// past its deadline. Keep the runtime running, use [`own_thread`](crate::SequencesBuilder::own_thread),
    /// or use [`blocking`](Self::blocking), which also checks the caller's clock.
    ///
    /// # Errors
    /// [`ErrorKind::Deadline`] after the sequence's [`timeout`](crate::SequenceBuilder::timeout), by default
    /// 30 s, with the store's last error, if any, as its source; [`ErrorKind::Overloaded`] if too many
    /// callers are already waiting. Before the deadline: permanent errors of the store, errors that the store
    /// [marks](Error::refusing_waiters), such as [`ErrorKind::Unavailable`] from a standby,
    /// [`ErrorKind::Exhausted`] and [`ErrorKind::Closed`].
    #[inline]
    pub fn next(&self) -> Next<'_, T> {
        Next { allocator: self, waiting: None }
    }

    /// Returns a view for threads outside any async runtime.
    pub fn blocking(&self) -> Blocking<&Self> {
        Blocking { of: self }
    }

    /// Returns the only id of a reply, and drops smaller ids of the thread's block.
    #[cold]
    fn waited(&self, ids: &Ranges) -> T {
        let id: T = ids.only();
        if let Some(blocks) = &self.core_ref.blocks {
            blocks.catch_up(&self.core().stats, id.into_raw());
        }
        id
    }

    /// Waits for the actor. The future owns everything it needs, so it can outlive the borrow of the
    /// allocator.
    fn wait(&self, want: Want, timeout: Duration) -> impl Future<Output = Result<Ranges>> + Send + use<T> {
        wait::wait(self.core_ref.clone(), want, timeout)
    }

    /// Runs [`wait`](Self::wait) on this thread. If that is impossible, the error names the method to use
    /// `instead`.
    fn wait_blocking(&self, instead: &str, want: Want) -> Result<Ranges> {
        self.on_reply(instead, self.wait(want, self.limits.timeout), self.limits.timeout)
    }

    fn on_reply(
        &self,
        instead: &str,
        reply: impl Future<Output = Result<Ranges>>,
        timeout: Duration,
    ) -> Result<Ranges> {
        let outcome = block_on_reply(&self.core_ref.shared.runtime, instead, reply, timeout);
        outcome.map_err(|error| error.of(&self.core().name).during(Operation::Draw))
    }

    /// Waits until memory holds at least `n` ids, so that the next `n` draws need not wait: 1, or at most
    /// [`max_buffered`](crate::SequenceBuilder::max_buffered). A new sequence reserves 32 ids at first, and
    /// adapts to the load within a few refills; pass the number of ids that the load draws in that time.
    /// Under [`Order::Global`] memory never holds ids, and this returns immediately.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), and [`ErrorKind::InvalidInput`] for more ids than memory may hold.
    pub async fn warm(&self, n: u64) -> Result<()> {
        match self.missing_level(n)? {
            Some(level) => self.wait(level, self.limits.timeout).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the level to wait for; `None` if memory holds `n` ids.
    fn missing_level(&self, n: u64) -> Result<Option<Want>> {
        let settings = &self.core().settings;
        let most = self.core().sizing().most_in_memory();
        if n > most {
            let message = format!("cannot warm {n} ids: `max_buffered` is {most}; raise it, or warm fewer");
            return Err(Error::invalid(message).of(&self.core().name).during(Operation::Draw));
        }
        let level = n.max(1);
        let is_warm = settings.order == Order::Global || self.core().stock.has(level);
        Ok((!is_warm).then_some(Want::Level(level)))
    }

    /// Discards all ids in memory, for the whole process. Use it if ids reserved earlier must not be handed
    /// out, for example after a restore of the store. Returns the number of discarded ids, including those
    /// held by threads. A [`Handle`] discards the ids of its block at its next draw. After this returns, no
    /// new draw gets an id that was reserved before the call.
    pub fn discard(&self) -> u64 {
        self.core().revoke(self.mailbox())
    }

    /// Returns counters, levels and estimates as of now. Cheap enough to be called every second.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.core(), self.core_ref.shared.clock.now())
    }

    /// Returns the sequence's name.
    pub fn name(&self) -> &str {
        &self.core().name
    }
}

impl<T: Id> Blocking<&Allocator<T>> {
    /// Returns the next id. See [`Allocator::next`].
    ///
    /// # Errors
    /// Those of [`Allocator::next`]; [`ErrorKind::InvalidInput`] if this is the only thread that drives the
    /// refills.
    pub fn next(&self) -> Result<T> {
        match self.of.draw() {
            Ok(id) => Ok(T::from_raw(id)),
            Err(ErrorKind::Empty) => {
                self.of.wait_blocking("`next`", Want::Ids(1)).map(|ids| self.of.waited(&ids))
            }
            Err(reason) => Err(self.of.core_ref.draw_error(reason)),
        }
    }

    /// Waits until memory holds at least `n` ids. See [`Allocator::warm`].
    ///
    /// # Errors
    /// Those of [`Allocator::warm`].
    pub fn warm(&self, n: u64) -> Result<()> {
        match self.of.missing_level(n)? {
            Some(level) => self.of.wait_blocking("`warm`", level).map(drop),
            None => Ok(()),
        }
    }
}

impl<T: Id> Clone for Allocator<T> {
    fn clone(&self) -> Self {
        Self { core_ref: self.core_ref.clone(), limits: self.limits, of: PhantomData }
    }
}

impl<T: Id> fmt::Debug for Allocator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("name", &self.core().name).finish_non_exhaustive()
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<Ranges>> + Send>>;

/// The future of [`Allocator::next`]. Dropping it before it is ready costs at most one id, which is counted
/// as a gap.
#[must_use = "futures do nothing unless awaited"]
pub struct Next<'a, T: Id> {
    allocator: &'a Allocator<T>,
    waiting: Option<Waiting>,
}

impl<T: Id> Future for Next<'_, T> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let allocator = self.allocator;
        allocator.poll_id(&mut self.waiting, cx)
    }
}

impl<T: Id> Allocator<T> {
    /// Returns the next id, or stores the future that waits for it in `waiting`.
    #[inline]
    fn poll_id(&self, waiting: &mut Option<Waiting>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if waiting.is_none()
            && let Some(id) = self.draw_fast()
        {
            return Poll::Ready(Ok(T::from_raw(id)));
        }
        self.poll_on(waiting, cx)
    }

    #[cold]
    #[inline(never)]
    fn poll_on(&self, waiting: &mut Option<Waiting>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if waiting.is_none() {
            match self.draw_slow() {
                Ok(id) => return Poll::Ready(Ok(T::from_raw(id))),
                Err(ErrorKind::Empty) => {}
                Err(reason) => return Poll::Ready(Err(self.core_ref.draw_error(reason))),
            }
        }
        let waiting = waiting.get_or_insert_with(|| Box::pin(self.wait(Want::Ids(1), self.limits.timeout)));
        let ids = ready!(waiting.as_mut().poll(cx))?;
        Poll::Ready(Ok(self.waited(&ids)))
    }
}

impl<T: Id> fmt::Debug for Next<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("waiting", &self.waiting.is_some()).finish_non_exhaustive()
    }
}
