//! Tiers: a *window* in front of a store.
//!
//! A window is a shared, refillable range that many processes draw from: a row of one datacenter, or a
//! counter in a cache. [`Tiered`] joins it with the store behind it and is a [`Store`] itself. One protocol
//! serves every window:
//!
//! 1. A draw returns ids, or says that the window is dry, *with a token* that identifies the dry window that
//!    was seen.
//! 2. A process that has a token claims a range from the source behind, after it has the token and never
//!    before.
//! 3. The range is installed *only if the token still stands*. If not, somebody else has refilled the window
//!    meanwhile, and the draw begins again.
//!
//! Only ranges that were reserved for this one claim are ever installed, each at most once, so no id can
//! repeat, whatever happens between the steps. Ids grow across processes if all of them draw from the same
//! window in one place; each window's own documentation states its limits.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

#[doc(hidden)] // for the windows on caches
pub mod acquainted;
pub mod cache;
#[doc(hidden)] // for the windows on caches
pub mod counts;
#[doc(hidden)] // the decisions of one store's window, public for the models that explore them
pub mod datacenter;
#[doc(hidden)] // as these
pub mod fenced;
mod heard;
#[doc(hidden)] // for the windows on caches
pub mod known;
#[doc(hidden)] // for the windows on caches
pub mod options;
#[doc(hidden)] // as these
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

/// A shared, refillable range that many processes draw from. See the [module](self) for the protocol.
///
/// Any future may be dropped at any await point; the operation may then have been applied or not.
pub trait Window: Send + Sync + fmt::Debug + 'static {
    /// Identifies the state of the window that was seen, so that an install can be refused once the state has
    /// changed.
    type Token: Clone + fmt::Debug + Send + Sync + 'static;

    /// Draws up to `count` ids; fewer if the window's range ends, and never ids of two ranges.
    ///
    /// # Errors
    /// Those of [`Store::reserve`]. An unknown outcome is returned as such: the ids, if any, are a gap.
    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<Self::Token>>>;

    /// Returns how many ids to claim for the refill that this request caused and that `token` grants the
    /// right to. Called once, right before the claim.
    fn refill_size(&self, request: &Reserve, token: &Self::Token) -> u64;

    /// Returns whether to [`introduce`](Self::introduce) the sequence again before this refill, because its
    /// size depends on what others reserved meanwhile. This costs a look at the source.
    fn wants_news(&self, request: &Reserve) -> bool {
        let _ = request;
        false
    }

    /// Puts a claimed range into the window, if the token still stands.
    ///
    /// # Errors
    /// Those of [`Store::reserve`]. On any error except an unknown outcome, the range is certainly not
    /// installed. If the next draw shows the outcome of an install, the window may return
    /// [`Installed::Unknown`] instead of an unknown-outcome error.
    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        token: Self::Token,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>>;

    /// Gives back a token that nothing was claimed for, so that others need not wait. With `lost`, nobody
    /// knows whether anything was claimed. Best effort.
    fn release<'a>(&'a self, request: &'a Reserve, token: Self::Token, lost: bool) -> StoreFuture<'a, ()> {
        let _ = (request, token, lost);
        Box::pin(std::future::ready(()))
    }

    /// Takes back what is in the window, after `next` was set in the source; `sequence` is the state since
    /// then. A range that others reserved before that and are about to install must not get in. Does nothing
    /// for a window that finds out by itself.
    ///
    /// # Errors
    /// On any error, what is left in the window may still be handed out.
    fn recall<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<()>> {
        let _ = sequence;
        Box::pin(async { Ok(()) })
    }

    /// Tells a window that answered [`Drawn::Unacquainted`] what the source knows of the sequence.
    fn introduce(&self, sequence: &SequenceInfo) {
        let _ = sequence;
    }
}

/// The outcome of a draw.
#[derive(Clone, Debug)]
pub enum Drawn<Token> {
    /// Ids for the caller.
    Ids {
        /// The range, which is the caller's alone.
        grant: Grant,
        /// The window runs low and has room for another range. It is then refilled in the background.
        low: Option<Token>,
    },
    /// Nothing is left; this caller may refill.
    Dry(Token),
    /// Another caller is refilling: draw again after this long.
    Busy(Duration),
    /// The window needs to know the sequence first (its identity and bounds), through [`Window::introduce`].
    Unacquainted,
}

/// The outcome of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The range is installed, and these first ids of it are the caller's own.
    Ids(Grant),
    /// The range is installed: draw again.
    Done,
    /// The range is not installed, and will not be: draw again.
    Refused,
    /// The outcome is unknown: draw again. This caller must not hand out any of the ids.
    Unknown,
}

/// Where a window's ranges come from.
pub trait Source<Token>: fmt::Debug + Send + Sync + 'static {
    /// Reserves a range for the refill that `token` stands for.
    ///
    /// # Errors
    /// Those of [`Store::reserve`].
    fn claim<'a>(&'a self, request: &'a Reserve, token: &'a Token) -> StoreFuture<'a, Result<Claimed>>;

    /// Returns the store that keeps the sequences, for administration.
    fn store(&self) -> &dyn Store;
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// A range for this token.
    Range {
        /// The ids.
        grant: Grant,
        /// The source records the token of the claim and returns the same range for it again: a refused
        /// install loses nothing.
        recorded: bool,
    },
    /// The window has moved on since the token was seen: draw again.
    Stale,
    /// Every id is reserved; the only ones left are in the window.
    Nothing,
}

/// Any store can be the source of any window. It does not record claims: a range that cannot be installed is
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
