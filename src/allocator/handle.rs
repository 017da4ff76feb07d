//! Views of an allocator for one thread.

use std::fmt;
use std::time::Duration;

use super::{Allocator, first};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::lease::Block;
use crate::range::Ranges;
use crate::segment::{MAX_LEN, Segment};
use crate::settings::Order;
use crate::sync::Arc;

macro_rules! waiting_draws {
    () => {
        /// The next id; waits for the refill where there is none in memory. See [`Allocator::next`].
        ///
        /// # Errors
        /// As [`Allocator::next`].
        #[inline]
        pub async fn next(&mut self) -> Result<T> {
            if let Some(id) = self.draw() {
                return Ok(T::from_raw(id));
            }
            match self.draw_on() {
                Ok(id) => Ok(T::from_raw(id)),
                // Boxed, so that the future of a draw that need not wait stays small.
                Err(ErrorKind::Dry) => {
                    let wait = self.allocator.wait(1, self.allocator.patience());
                    Box::pin(wait).await.map(|ids| first(&ids))
                }
                Err(reason) => Err(self.allocator.sorry(reason)),
            }
        }

        /// The next id, for threads outside any async runtime. See [`Allocator::next_blocking`].
        ///
        /// # Errors
        /// As [`Allocator::next_blocking`].
        pub fn next_blocking(&mut self, timeout: Duration) -> Result<T> {
            match self.draw().map_or_else(|| self.draw_on(), Ok) {
                Ok(id) => Ok(T::from_raw(id)),
                Err(ErrorKind::Dry) => {
                    self.allocator.wait_blocking("`next`", 1, timeout).map(|ids| first(&ids))
                }
                Err(reason) => Err(self.allocator.sorry(reason)),
            }
        }

        /// The next id, from memory; never waits. See [`Allocator::try_next`].
        ///
        /// # Errors
        /// As [`Allocator::try_next`].
        #[inline]
        pub fn try_next(&mut self) -> Result<T> {
            match self.draw() {
                Some(id) => Ok(T::from_raw(id)),
                None => match self.draw_on() {
                    Ok(id) => Ok(T::from_raw(id)),
                    Err(reason) => Err(self.allocator.core().refused(reason)),
                },
            }
        }

        /// The allocator that this is a view of.
        pub fn allocator(&self) -> &Allocator<T> {
            &self.allocator
        }
    };
}

/// A view of an [`Allocator`] for one thread: remembers the segment it draws from, and is as fast as the bare
/// instruction. Ids grow across all handles of the process, as the sequence's [`Order`] says.
///
/// Holds no ids for itself: dropping it loses none.
pub struct Handle<T: Id = u64> {
    allocator: Allocator<T>,
    segment: Arc<Segment>,
}

impl<T: Id> Handle<T> {
    pub(super) fn new(allocator: Allocator<T>) -> Self {
        let segment = allocator.core().stock.current();
        Self { allocator, segment }
    }

    /// The next id of the segment that this handle remembers.
    #[inline]
    fn draw(&mut self) -> Option<u64> {
        self.allocator.tenant.core.draw_here(&self.segment)
    }

    /// The next id of whatever is published.
    #[cold]
    #[inline(never)]
    fn draw_on(&mut self) -> Result<u64, ErrorKind> {
        self.allocator.tenant.core.draw(&mut self.segment)
    }

    waiting_draws!();

    /// Exactly `n` ids. See [`Allocator::take`].
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub async fn take(&mut self, n: u64) -> Result<Ranges<T>> {
        self.allocator.take(n).await
    }
}

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

/// A view of an [`Allocator`] for one thread that takes a block of ids for itself and draws from that by a
/// plain increment. Ids grow per lease.
///
/// What is left in it when it is dropped is a gap.
pub struct Lease<T: Id = u64> {
    allocator: Allocator<T>,
    block: Block,
    segment: Arc<Segment>,
    size: u64,
}

impl<T: Id> Lease<T> {
    pub(super) fn new(allocator: Allocator<T>, size: u64) -> Result<Self> {
        let fault = if size == 0 || size > MAX_LEN {
            format!("a lease of {size} ids; it must be 1 to 2^48")
        } else if allocator.core().settings.order != Order::Thread {
            "ids do not grow across leases; open the sequence with `Order::Thread` to use them".to_owned()
        } else {
            let segment = allocator.core().stock.current();
            return Ok(Self { allocator, block: Block::EMPTY, segment, size });
        };
        Err(Error::invalid(fault).of(allocator.name()).during(Operation::Configure))
    }

    /// The next id of the block that this lease holds.
    #[inline]
    fn draw(&mut self) -> Option<u64> {
        let core = &self.allocator.tenant.core;
        if let Some(id) = self.block.draw(&core.stock) {
            return Some(id);
        }
        self.block.renew(core, &mut self.segment, self.size)
    }

    /// Why there is no block to be had, or an id that has come meanwhile.
    #[cold]
    #[inline(never)]
    fn draw_on(&mut self) -> Result<u64, ErrorKind> {
        self.allocator.tenant.core.draw(&mut self.segment)
    }

    waiting_draws!();
}

impl<T: Id> Drop for Lease<T> {
    fn drop(&mut self) {
        self.block.abandon(&self.allocator.tenant.core);
    }
}

impl<T: Id> fmt::Debug for Lease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.allocator.name())
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
