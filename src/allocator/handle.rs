//! Views of an allocator for one thread.

use std::fmt;

use super::Allocator;
use crate::blocking::Blocking;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::range::Ranges;
use crate::state::block::Block;
use crate::state::segment::{MAX_LEN, Segment};
use crate::state::settings::Order;
use crate::state::want::Want;
use crate::sync::Arc;

macro_rules! draws {
    () => {
        /// Returns the next id of the published segment, or the reason why there is none.
        #[cold]
        #[inline(never)]
        fn draw_slow(&mut self) -> Result<u64, ErrorKind> {
            self.allocator.core().draw(&mut self.segment, self.allocator.mailbox())
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
                    Err(reason) => Err(self.allocator.core().refused(reason, self.allocator.mailbox())),
                },
            }
        }

        /// Returns the allocator that this is a view of.
        pub fn allocator(&self) -> &Allocator<T> {
            &self.allocator
        }
    };
}

impl<T: Id> Allocator<T> {
    /// Returns a view for one thread. It draws at the speed of one atomic instruction.
    pub fn handle(&self) -> Handle<T> {
        Handle::new(self.clone())
    }

    /// Returns a view for one thread that takes `size` ids at a time, 1 to 2^48. A draw from them is a plain
    /// increment. Ids that the block still holds when it is dropped become a gap.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] if `size` is out of bounds, or if the sequence's order is not
    /// [`Order::Thread`], because ids do not increase across blocks.
    pub fn block(&self, size: u64) -> Result<IdBlock<T>> {
        IdBlock::new(self.clone(), size)
    }
}

/// A view of an [`Allocator`] for one thread. It caches the segment that it draws from, so a draw costs one
/// atomic instruction. Ids increase as the sequence's [`Order`] guarantees.
///
/// A handle holds no ids: dropping it loses none.
pub struct Handle<T: Id = i64> {
    allocator: Allocator<T>,
    segment: Arc<Segment>,
}

impl<T: Id> Handle<T> {
    fn new(allocator: Allocator<T>) -> Self {
        let segment = allocator.core().stock.current();
        Self { allocator, segment }
    }

    /// Returns the next id of the cached segment.
    #[inline]
    fn draw(&mut self) -> Option<u64> {
        self.allocator.core_ref.draw_from(&self.segment)
    }

    /// Returns exactly `n` ids. See [`Allocator::take`].
    ///
    /// # Errors
    /// Those of [`Allocator::take`].
    pub async fn take(&mut self, n: u64) -> Result<Ranges<T>> {
        self.allocator.take(n).await
    }

    draws!();
}

macro_rules! blocking_draws {
    ($($view:ident),*) => {$(
        impl<T: Id> Blocking<&mut $view<T>> {
            /// Returns the next id. See [`Allocator::next`].
            ///
            /// # Errors
            /// Those of [`Allocator::next`]; [`ErrorKind::InvalidInput`] if this is the only thread that
            /// drives the refills.
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
    )*};
}

blocking_draws!(Handle, IdBlock);

impl<T: Id> Clone for Handle<T> {
    fn clone(&self) -> Self {
        self.allocator.handle()
    }
}

impl<T: Id> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("name", &self.allocator.name()).finish_non_exhaustive()
    }
}

/// A view of an [`Allocator`] for one thread that takes a block of ids and draws from it by a plain
/// increment. Ids increase within a block.
///
/// Ids that it still holds when it is dropped become a gap.
pub struct IdBlock<T: Id = i64> {
    allocator: Allocator<T>,
    block: Block,
    segment: Arc<Segment>,
    size: u64,
}

impl<T: Id> IdBlock<T> {
    fn new(allocator: Allocator<T>, size: u64) -> Result<Self> {
        let fault = if size == 0 || size > MAX_LEN {
            format!("invalid block of {size} ids; it must be from 1 to 2^48")
        } else if allocator.core().settings.order != Order::Thread {
            "blocks need `Order::Thread`, because ids do not grow across blocks; open the sequence with it"
                .to_owned()
        } else {
            let segment = allocator.core().stock.current();
            return Ok(Self { allocator, block: Block::EMPTY, segment, size });
        };
        Err(Error::invalid(fault).of(allocator.name()).during(Operation::Configure))
    }

    /// Returns the next id of the block, or of a new block from memory.
    #[inline]
    fn draw(&mut self) -> Option<u64> {
        let core = self.allocator.core();
        if let Some(id) = self.block.draw(&core.stock) {
            return Some(id);
        }
        let (allocator, segment, size) = (&self.allocator, &mut self.segment, self.size);
        self.block.renew(&core.stock, &core.stats, || core.take_some(size, segment, allocator.mailbox()))
    }

    draws!();
}

impl<T: Id> Drop for IdBlock<T> {
    fn drop(&mut self) {
        self.block.abandon(&self.allocator.core().stats);
    }
}

impl<T: Id> fmt::Debug for IdBlock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdBlock")
            .field("name", &self.allocator.name())
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
