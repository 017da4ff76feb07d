//! Ids and blocks of ids as streams.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::stream::{FusedStream, Stream};
use tokio::task::coop;

use super::{Allocator, Waiting};
use crate::error::{Error, Operation, Result, Status};
use crate::id::Id;
use crate::range::Ranges;

impl<T: Id> Allocator<T> {
    /// Returns the ids one by one, as a stream of its own that others draw beside. Each item is what
    /// [`next`](Self::next) returns.
    ///
    /// The stream ends after an error that is [permanent](Status::Permanent), such as
    /// [`Exhausted`](crate::ErrorKind::Exhausted) or [`Closed`](crate::ErrorKind::Closed). After any other
    /// error it goes on: the next item may be an id again.
    ///
    /// It holds no ids: dropping it between two items loses none. Dropping it while it waits costs at most
    /// one id, counted as a gap.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
    /// use futures_util::TryStreamExt;
    ///
    /// let orders = idmill::Sequences::new(idmill::store::MemoryStore::new())?.sequence::<u64>("orders").await?;
    /// let mut ids = orders.ids_stream();
    /// while let Some(id) = ids.try_next().await? {
    ///     // …
    ///     # if id == 3 { break }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn ids_stream(&self) -> IdStream<T> {
        IdStream { allocator: self.clone(), waiting: None, is_over: false }
    }

    /// Returns blocks of exactly `n` ids each, as a stream of its own. Each item is what
    /// [`take`](Self::take) returns: for inserts in bulk.
    ///
    /// The stream ends as that of [`ids_stream`](Self::ids_stream) does. Fewer than `n` ids that are left at
    /// the end of the sequence stay for smaller draws. An `n` of 0, or above
    /// [`max_take`](crate::SequenceBuilder::max_take), is [`InvalidInput`](crate::ErrorKind::InvalidInput)
    /// as the only item.
    ///
    /// It holds no ids: dropping it between two items loses none. Dropping it while it waits costs what
    /// cancelling a `take` costs.
    pub fn ranges_stream(&self, n: u64) -> RangesStream<T> {
        RangesStream { allocator: self.clone(), n, taking: None, is_over: false }
    }
}

/// The stream of [`Allocator::ids_stream`].
#[must_use = "streams do nothing unless polled"]
pub struct IdStream<T: Id = u64> {
    allocator: Allocator<T>,
    waiting: Option<Waiting>,
    is_over: bool,
}

impl<T: Id> Stream for IdStream<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let Self { allocator, waiting, is_over } = self.get_mut();
        if *is_over {
            return Poll::Ready(None);
        }
        // Ids from memory are always ready. Without a budget, a loop in one poll would never let go of its
        // thread.
        let step = ready!(coop::poll_proceed(cx));
        let item = ready!(allocator.poll_id(waiting, cx));
        step.made_progress();
        *waiting = None;
        *is_over = is_final(&item);
        Poll::Ready(Some(item))
    }
}

/// The stream of [`Allocator::ranges_stream`].
#[must_use = "streams do nothing unless polled"]
pub struct RangesStream<T: Id = u64> {
    allocator: Allocator<T>,
    n: u64,
    taking: Option<Taking<T>>,
    is_over: bool,
}

type Taking<T> = Pin<Box<dyn Future<Output = Result<Ranges<T>>> + Send>>;

impl<T: Id> Stream for RangesStream<T> {
    type Item = Result<Ranges<T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { allocator, n, taking, is_over } = self.get_mut();
        if *is_over {
            return Poll::Ready(None);
        }
        let step = ready!(coop::poll_proceed(cx));
        let item = ready!(taking.get_or_insert_with(|| take(allocator.clone(), *n)).as_mut().poll(cx));
        step.made_progress();
        *taking = None;
        *is_over = is_final(&item);
        Poll::Ready(Some(item))
    }
}

fn take<T: Id>(allocator: Allocator<T>, n: u64) -> Taking<T> {
    Box::pin(async move {
        if n == 0 {
            let error = Error::invalid("a stream of blocks of 0 ids would never end; ask for at least 1");
            return Err(error.of(allocator.name()).during(Operation::Draw));
        }
        allocator.take(n).await
    })
}

fn is_final<R>(item: &Result<R>) -> bool {
    item.as_ref().is_err_and(|error| error.status() == Status::Permanent)
}

macro_rules! fused {
    ($($stream:ident),*) => {$(
        impl<T: Id> FusedStream for $stream<T> {
            fn is_terminated(&self) -> bool {
                self.is_over
            }
        }

        impl<T: Id> fmt::Debug for $stream<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($stream))
                    .field("name", &self.allocator.name())
                    .field("is_over", &self.is_over)
                    .finish_non_exhaustive()
            }
        }
    )*};
}

fused!(IdStream, RangesStream);
