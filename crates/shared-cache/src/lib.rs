//! Tiers: a *window* in front of a store.
//!
//! A window is a refillable range, shared by many processes: a row of one datacenter, or a counter in a
//! cache. [`Tiered`] combines it with the store behind it and is itself a [`Store`]. All windows use one
//! protocol:
//!
//! 1. A draw returns ids, or reports an empty window *with a token* that identifies the state it read.
//! 2. A process with a token claims a range from the source. It always gets the token before it claims.
//! 3. The range is installed *only if the token is still valid*. If not, another process has refilled the
//!    window, and the draw starts again.
//!
//! Each installed range was reserved for exactly one claim and is installed at most once. So no id can
//! repeat, whatever happens between the steps. Ids grow across processes if all of them draw from the
//! same window in one place. The documentation of each window states its limits.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

pub mod cache;
#[doc(hidden)] // for the windows on caches
pub mod counts;
#[doc(hidden)] // the window of one store, public for its models
pub mod datacenter;
mod draw_floors;
#[doc(hidden)] // as `datacenter`
pub mod fenced;
#[doc(hidden)] // for the windows on caches
pub mod known;
#[doc(hidden)] // for the windows on caches
pub mod options;
#[doc(hidden)] // as `options`
pub mod pace;
mod sizing;
mod tiered;

use std::fmt;
use std::time::Duration;

use idmill::Result;
use idmill::store::{Grant, Reserve, SequenceInfo, Store, StoreFuture};

pub use counts::WindowStats;
pub use sizing::{RangeSize, Sizing};
pub use tiered::Tiered;

/// A refillable range, shared by many processes. For the protocol, see the [module](self).
///
/// Any future may be dropped at any await point. Its operation may or may not be applied.
pub trait Window: Send + Sync + fmt::Debug + 'static {
    /// Identifies the state of the window that was read. An install is rejected after the state has changed.
    type Token: Clone + fmt::Debug + Send + Sync + 'static;

    /// Draws up to `count` ids. May return fewer, for example at the end of the window's range. The ids are
    /// consecutive.
    ///
    /// # Errors
    /// Those of [`Store::reserve`]. An unknown outcome is returned as such; the ids, if any, are a gap.
    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<Self::Token>>>;

    /// Returns the number of ids to claim for the refill that this request caused and `token` permits. Called
    /// once, immediately before the claim.
    fn refill_size(&self, request: &Reserve, token: &Self::Token) -> u64;

    /// Returns whether to [`introduce`](Self::introduce) the sequence again before this refill, because the
    /// size depends on reserves by others. This costs a read of the source.
    fn wants_news(&self, request: &Reserve) -> bool {
        let _ = request;
        false
    }

    /// Puts a claimed range into the window, if the token is still valid.
    ///
    /// # Errors
    /// Those of [`Store::reserve`]. After any error except an unknown outcome, the range is not installed. If
    /// the next draw reveals the outcome of an install, the window may return [`Installed::Unknown`] instead
    /// of an unknown-outcome error.
    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        token: Self::Token,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>>;

    /// Gives back a token that was not used for a claim, so that others need not wait. `lost` means that it
    /// is unknown whether anything was claimed. Best effort.
    fn release<'a>(&'a self, request: &'a Reserve, token: Self::Token, lost: bool) -> StoreFuture<'a, ()> {
        let _ = (request, token, lost);
        Box::pin(std::future::ready(()))
    }

    /// Empties the window after `next` was set or ids were revoked in the source; `sequence` is the state
    /// after that. A range that others reserved before and have not yet installed must not enter the window.
    /// Does nothing for a window that detects the change itself.
    ///
    /// # Errors
    /// After any error, the remaining ids of the window may still be handed out.
    fn recall<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<()>> {
        let _ = sequence;
        Box::pin(async { Ok(()) })
    }

    /// Passes the source's state of a sequence to the window, for example after [`Drawn::UnknownSequence`].
    fn introduce(&self, sequence: &SequenceInfo) {
        let _ = sequence;
    }
}

/// The outcome of a draw.
#[derive(Clone, Debug)]
pub enum Drawn<Token> {
    /// Ids for the caller.
    Ids {
        /// The range, which no other caller has.
        grant: Grant,
        /// The token for a refill in the background, if the window is low and has room for another range.
        low: Option<Token>,
    },
    /// The window is empty, and this caller may refill it.
    Empty(Token),
    /// Another caller is refilling the window. Draw again after this time.
    Busy(Duration),
    /// The window first needs the identity and bounds of the sequence, through [`Window::introduce`].
    UnknownSequence,
}

/// The outcome of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The range is installed, and these first ids of it belong to the caller.
    Ids(Grant),
    /// The range is installed. Draw again.
    Done,
    /// The range is not installed, and never will be. Draw again.
    Refused,
    /// The outcome is unknown. Draw again; this caller must not hand out any of the ids.
    Unknown,
}

/// The source of a window's ranges.
pub trait Source<Token>: fmt::Debug + Send + Sync + 'static {
    /// Reserves a range for the refill that `token` permits.
    ///
    /// # Errors
    /// Those of [`Store::reserve`].
    fn claim<'a>(&'a self, request: &'a Reserve, token: &'a Token) -> StoreFuture<'a, Result<Claimed>>;

    /// Returns the store of the sequences, for administration.
    fn store(&self) -> &dyn Store;
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// A range for this token.
    Range {
        /// The ids.
        grant: Grant,
        /// Whether the source records the claim's token and returns the same range for it again. A rejected
        /// install then loses nothing.
        recorded: bool,
    },
    /// The window has changed since the token was read. Draw again.
    Stale,
    /// All ids are reserved. Any remaining ids are in windows.
    Nothing,
}

/// Makes any store a source for any window. It does not record claims, so a range that cannot be installed is
/// a gap.
impl<Token: Send + Sync + 'static, S: Store + ?Sized + 'static> Source<Token> for std::sync::Arc<S> {
    fn claim<'a>(&'a self, request: &'a Reserve, _token: &'a Token) -> StoreFuture<'a, Result<Claimed>> {
        Box::pin(async move {
            let grant = self.reserve(request).await?;
            Ok(Claimed::Range { grant, recorded: false })
        })
    }

    fn store(&self) -> &dyn Store {
        self
    }
}
