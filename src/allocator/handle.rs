//! Views of an allocator for one thread.

use std::fmt;

use super::Allocator;
use crate::blocking::Blocking;
use crate::error::{ErrorKind, Result};
use crate::id::Id;
use crate::range::Ranges;
use crate::state::block::Block;
use crate::state::segment::Segment;
use crate::state::settings::Order;
use crate::state::want::Want;
use crate::sync::Arc;

impl<T: Id> Allocator<T> {
    /// Returns a view for one thread, which is the fastest way to draw: see [`Handle`].
    pub fn handle(&self) -> Handle<T> {
        let (segment, order) = (self.core().stock.current(), self.core().settings.order);
        Handle { allocator: self.clone(), segment, block: (order == Order::Thread).then_some(Block::EMPTY) }
    }
}

/// A view of an [`Allocator`] for one thread. It caches the segment that it draws from, so a draw costs one
/// atomic instruction. Under [`Order::Thread`], it takes a block of
/// [`block_size`](crate::SequenceBuilder::block_size) ids for itself, so a draw costs a plain increment. Ids
/// increase as the sequence's [`Order`] guarantees.
///
/// Keep a handle as long as its thread draws. Ids left in its block when it is dropped become a gap; without
/// a block, dropping it loses none.
pub struct Handle<T: Id = i64> {
    allocator: Allocator<T>,
    segment: Arc<Segment>,
    /// Under [`Order::Thread`].
    block: Option<Block>,
}

impl<T: Id> Handle<T> {
    /// Returns the next id of the block, or of the cached segment.
    #[inline]
    fn draw(&mut self) -> Option<u64> {
        match &mut self.block {
            None => self.allocator.core_ref.draw_from(&self.segment),
            Some(block) => block.draw(&self.allocator.core().stock),
        }
    }

    /// Returns the next id of a new block or of the published segment, or the reason why there is none.
    #[cold]
    #[inline(never)]
    fn draw_slow(&mut self) -> Result<u64, ErrorKind> {
        let Self { allocator, segment, block } = self;
        let (core, mailbox) = (allocator.core(), allocator.mailbox());
        let take = || core.take_some(core.settings.block, segment, mailbox);
        let id = block.as_mut().and_then(|block| block.renew(&core.stock, &core.stats, take));
        // If memory had no block, this returns the reason, or an id that has arrived since.
        id.map_or_else(|| core.draw(segment, mailbox), Ok)
    }

    /// Returns the next id, and waits for a refill if memory holds none. See [`Allocator::next`].
    ///
    /// # Errors
    /// Those of [`Allocator::next`].
    #[inline]
    pub async fn next(&mut self) -> Result<T> {
        if let Some(id) = self.draw() {
            return Ok(T::from_raw(id));
        }
        match self.draw_slow() {
            Ok(id) => Ok(T::from_raw(id)),
            // Box the wait, so that the future of a draw without a wait stays small.
            Err(ErrorKind::Empty) => {
                let wait = self.allocator.wait(Want::Ids(1), self.allocator.limits.timeout);
                Box::pin(wait).await.map(|ids| ids.only())
            }
            Err(reason) => Err(self.allocator.core_ref.draw_error(reason)),
        }
    }

    /// Returns a view for threads outside any async runtime.
    pub fn blocking(&mut self) -> Blocking<&mut Self> {
        Blocking { of: self }
    }

    /// Returns the next id from memory; never waits. See [`Allocator::try_next`].
    ///
    /// # Errors
    /// Those of [`Allocator::try_next`].
    #[inline]
    pub fn try_next(&mut self) -> Result<T> {
        match self.draw() {
            Some(id) => Ok(T::from_raw(id)),
            None => match self.draw_slow() {
                Ok(id) => Ok(T::from_raw(id)),
                Err(reason) => Err(self.allocator.core_ref.refused(reason)),
            },
        }
    }

    /// Returns exactly `n` ids. See [`Allocator::take`].
    ///
    /// # Errors
    /// Those of [`Allocator::take`].
    pub async fn take(&mut self, n: u64) -> Result<Ranges<T>> {
        self.allocator.take(n).await
    }

    /// Returns the allocator that this is a view of.
    pub fn allocator(&self) -> &Allocator<T> {
        &self.allocator
    }
}

impl<T: Id> Blocking<&mut Handle<T>> {
    /// Returns the next id. See [`Allocator::next`].
    ///
    /// # Errors
    /// Those of [`Allocator::next`]; [`ErrorKind::InvalidInput`] if this is the only thread that drives the
    /// refills.
    #[allow(clippy::should_implement_trait, reason = "`next` returns errors, so this is not an iterator")]
    pub fn next(&mut self) -> Result<T> {
        match self.of.draw().map_or_else(|| self.of.draw_slow(), Ok) {
            Ok(id) => Ok(T::from_raw(id)),
            Err(ErrorKind::Empty) => {
                self.of.allocator.wait_blocking("`next`", Want::Ids(1)).map(|ids| ids.only())
            }
            Err(reason) => Err(self.of.allocator.core_ref.draw_error(reason)),
        }
    }
}

impl<T: Id> Clone for Handle<T> {
    fn clone(&self) -> Self {
        self.allocator.handle()
    }
}

impl<T: Id> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Some(block) = &self.block {
            block.abandon(&self.allocator.core().stats);
        }
    }
}

impl<T: Id> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("name", &self.allocator.name()).finish_non_exhaustive()
    }
}
