//! One draw in each mode, with as little overhead as possible.

#![allow(clippy::inline_always)] // a call around a draw takes about as long as the draw that is measured

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use idmill::{Allocator, ErrorKind, Handle, IdBlock, Result};
use tokio::runtime::Runtime;

use crate::measuring::TIMEOUT;

pub(super) trait Draw {
    /// Number of draws that one timed draw represents.
    const BLOCK: u64 = 4096;

    /// Returns the number of ids per draw.
    fn ids(&self) -> u64 {
        1
    }

    /// Draws once. Returns the latency if the draw had to wait for the store.
    fn draw(&mut self) -> Result<Option<Duration>>;
}

/// The reference instruction. Its counter has its own cache line, like the allocator's cursor.
#[allow(clippy::disallowed_types)] // the bare atomic itself is what is measured
pub(super) mod bare {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::{Draw, Result};

    #[derive(Debug, Default)]
    #[repr(align(128))]
    pub(in super::super) struct Counter(AtomicU64);

    impl Draw for &Counter {
        #[inline(always)]
        fn draw(&mut self) -> Result<Option<Duration>> {
            black_box(self.0.fetch_add(1, Ordering::Relaxed));
            Ok(None)
        }
    }
}

/// Draws from memory. If memory is empty, waits for the store, and times this wait.
macro_rules! draws {
    ($ty:ty) => {
        impl Draw for $ty {
            #[inline(always)]
            fn draw(&mut self) -> Result<Option<Duration>> {
                match self.try_next() {
                    Ok(id) => {
                        black_box(id);
                        Ok(None)
                    }
                    Err(error) if error.kind() == ErrorKind::Empty => {
                        let before = Instant::now();
                        black_box(self.blocking().next()?);
                        Ok(Some(before.elapsed()))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    };
}

draws!(Handle<u64>);
draws!(IdBlock<u64>);
draws!(&Allocator<u64>);

/// Draws several ids per call.
pub(super) struct Take<'a> {
    pub(super) allocator: &'a Allocator<u64>,
    pub(super) ids: u64,
}

impl Draw for Take<'_> {
    // A call does not report whether it waited, so every call is timed. The cost of the clock is small for a
    // call that takes many ids.
    const BLOCK: u64 = 1;

    fn ids(&self) -> u64 {
        self.ids
    }

    #[inline(always)]
    fn draw(&mut self) -> Result<Option<Duration>> {
        let _ = black_box(self.allocator.blocking().take(self.ids)?);
        Ok(None)
    }
}

/// Futures: ready immediately, or awaited on a runtime.
pub(super) struct Future_<'a> {
    pub(super) allocator: &'a Allocator<u64>,
    pub(super) runtime: Runtime,
}

impl Draw for Future_<'_> {
    #[inline(always)]
    fn draw(&mut self) -> Result<Option<Duration>> {
        let mut next = pin!(self.allocator.next());
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(id) => {
                black_box(id?);
                Ok(None)
            }
            Poll::Pending => {
                let before = Instant::now();
                black_box(self.runtime.block_on(next)?);
                Ok(Some(before.elapsed()))
            }
        }
    }
}
