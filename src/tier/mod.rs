//! Tiers: a *window* in front of a store.
//!
//! A window is a shared, refillable range that many processes draw from: a row of one datacenter, or a
//! counter in a cache. [`Tiered`] joins it with the store behind it and is a [`Store`] itself. One
//! protocol serves every window:
//!
//! 1. A draw answers with ids, or that the window is dry, *with a token* that says which dry window was seen.
//! 2. A process that has a token claims a range from the source behind, after it
//!    has the token and never before.
//! 3. The range is installed *only if the token still stands*. If not, somebody else refilled
//!    meanwhile, and the draw begins again.
//!
//! Since only ranges that were reserved for this one claim are ever installed, and each at most once, no id
//! can repeat, whatever happens between the steps. Growth across processes holds where the window is one
//! place that all of them draw from; each window's own documentation states its limits.

#[cfg(all(any(feature = "memcached", feature = "redis"), not(idmill_loom)))]
mod acquainted;
pub mod cache;
#[doc(hidden)] // the decisions of one store's window, public for the models that explore them
pub mod datacenter;
#[doc(hidden)] // as these
pub mod fenced;
mod heard;
#[cfg(all(any(feature = "memcached", feature = "redis"), not(idmill_loom)))]
mod max_skip;
#[cfg(all(feature = "memcached", not(idmill_loom)))]
pub mod memcached;
#[doc(hidden)] // as these
pub mod pace;
#[cfg(all(feature = "redis", not(idmill_loom)))]
pub mod redis;
mod sizing;
mod tiered;

use std::fmt;
use std::time::Duration;

use crate::error::Result;
use crate::store::{Grant, Reserve, SequenceInfo, Store, StoreFuture};

pub use sizing::{RangeSize, Sizing};
pub use tiered::Tiered;

/// A shared, refillable range that many processes draw from. See the [module](self) for the protocol.
///
/// Any future may be dropped at any await point; what it had under way may be applied or not.
pub trait Window: Send + Sync + fmt::Debug + 'static {
    /// Says which state of the window was seen, so that an install can be refused once it is another.
    type Token: Clone + fmt::Debug + Send + Sync + 'static;

    /// Draws up to `count` ids; fewer where the window's range ends, never ids of two ranges.
    ///
    /// # Errors
    /// As [`Store::reserve`]. An unknown outcome is returned as such: the ids, if any, are a gap.
    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<Self::Token>>>;

    /// How many ids to claim for the refill that `token` is the right to, and this request caused. Asked
    /// once, right before they are.
    fn refill_size(&self, request: &Reserve, token: &Self::Token) -> u64;

    /// Whether to [`introduce`](Self::introduce) the sequence again before this refill: its size depends on
    /// what others reserved meanwhile. It costs a look at the source.
    fn wants_news(&self, request: &Reserve) -> bool {
        let _ = request;
        false
    }

    /// Puts a claimed range into the window, if the token still stands.
    ///
    /// # Errors
    /// As [`Store::reserve`]: on any other kind than an unknown outcome, it is certainly not
    /// installed. A window whose next draw shows what came of an install may answer
    /// [`Installed::Unknown`] for an unknown outcome.
    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        token: Self::Token,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>>;

    /// Gives a token back for which nothing is claimed, so that others need not wait for it; or which is
    /// `lost`: nobody knows whether anything was. Best effort.
    fn release<'a>(&'a self, request: &'a Reserve, token: Self::Token, lost: bool) -> StoreFuture<'a, ()> {
        let _ = (request, token, lost);
        Box::pin(std::future::ready(()))
    }

    /// Takes back what is in the window: `next` was set in the source, which `sequence` is the state of
    /// since. What others are about to install that was reserved before must not get in. Nothing, for a
    /// window that finds out by itself.
    ///
    /// # Errors
    /// Whatever is left in the window may still be handed out.
    fn recall<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<()>> {
        let _ = sequence;
        Box::pin(async { Ok(()) })
    }

    /// Tells a window that answered [`Drawn::Unacquainted`] what the source knows of the sequence.
    fn introduce(&self, sequence: &SequenceInfo) {
        let _ = sequence;
    }
}

/// What came of a draw.
#[derive(Clone, Debug)]
pub enum Drawn<Token> {
    /// Ids for the caller.
    Ids {
        /// The range, which is the caller's alone.
        grant: Grant,
        /// The window runs low and has room for another range. It is then refilled in the background.
        low: Option<Token>,
    },
    /// Nothing left; this caller may refill.
    Dry(Token),
    /// Somebody else is refilling: look again after this long.
    Busy(Duration),
    /// The window needs to know the sequence first (its identity and bounds), through [`Window::introduce`].
    Unacquainted,
}

/// What came of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is done, and these first ids of the range are the caller's own.
    Ids(Grant),
    /// It is done; draw again.
    Done,
    /// It was not, and will not be: draw again.
    Refused,
    /// Nobody knows: draw again. None of the ids may be handed out by this caller.
    Unknown,
}

/// Where a window's ranges come from.
pub trait Source<Token>: fmt::Debug + Send + Sync + 'static {
    /// Reserves a range for the refill that `token` stands for.
    ///
    /// # Errors
    /// As [`Store::reserve`].
    fn claim<'a>(&'a self, request: &'a Reserve, token: &'a Token) -> StoreFuture<'a, Result<Claimed>>;

    /// The store that keeps the sequences, for administration.
    fn store(&self) -> &dyn Store;
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// A range for this token.
    Range {
        /// The ids.
        grant: Grant,
        /// The source remembers which token it was for, and will answer the same again: an install
        /// that is refused loses nothing.
        recorded: bool,
    },
    /// The window moved on since the token was seen: draw again.
    Stale,
    /// Everything is reserved; what is left is in the window.
    Nothing,
}

/// Any store serves as the source of any window. It does not remember claims: what
/// cannot be installed is a gap.
impl<Token: Send + Sync + 'static> Source<Token> for std::sync::Arc<dyn Store> {
    fn claim<'a>(&'a self, request: &'a Reserve, _token: &'a Token) -> StoreFuture<'a, Result<Claimed>> {
        Box::pin(async move {
            let grant = self.reserve(request).await?;
            Ok(Claimed::Range { grant, recorded: false })
        })
    }

    fn store(&self) -> &dyn Store {
        &**self
    }
}
