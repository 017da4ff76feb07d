//! Where sequences live: the [`Store`] trait, for people who use a store and for people who write one.
//!
//! # Writing a store
//!
//! A store keeps, for each sequence, the *next* id to reserve, the bounds, and an [`Identity`]. The one thing
//! that must hold, whatever crashes or is cut off, is the contract of [`Store::reserve`]: **two grants of one
//! identity never share an id**. Everything else follows from being honest about what is known:
//!
//! - Return [`ErrorKind::Unavailable`] only if the store certainly did not reserve; if a reply was lost, a
//!   commit timed out, or a connection broke after the request may have left, return
//!   [`ErrorKind::UnknownOutcome`].
//! - A grant must be as durable as [`Capabilities::durability`] says *before* it is returned: the allocator
//!   hands ids out the moment it has it.
//! - Any future may be dropped at any await point. What it had under way may be applied or not; the allocator
//!   treats a dropped reserve as lost.
//! - Never retry a write inside a store unless its condition makes a second application impossible.
//!
//! Sort the errors of your driver in one function called `classify`, and test it with errors taken from the
//! real engine. The allocator checks every grant (size, bounds, growth) and refuses nonsense, so a bug in a
//! store is loud; but it cannot see what other processes were granted.

// The models reserve from a counter; what does I/O stays out of their way.
#[cfg(all(
    any(
        feature = "mongodb",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "spanner"
    ),
    not(idmill_loom)
))]
mod calls;
#[cfg(all(feature = "cassandra", not(idmill_loom)))]
pub mod cassandra;
#[cfg(all(feature = "datastore", not(idmill_loom)))]
pub mod datastore;
#[cfg(all(feature = "etcd", not(idmill_loom)))]
pub mod etcd;
#[cfg(not(idmill_loom))]
mod existing;
mod grant;
mod list;
#[cfg(not(idmill_loom))]
mod memory;
#[cfg(all(
    any(feature = "mysql", feature = "postgres", feature = "spanner", feature = "sqlite"),
    not(idmill_loom)
))]
mod mode;
#[cfg(all(feature = "mongodb", not(idmill_loom)))]
pub mod mongodb;
#[cfg(all(feature = "mysql", not(idmill_loom)))]
pub mod mysql;
#[cfg(all(feature = "postgres", not(idmill_loom)))]
pub mod postgres;
#[cfg(all(feature = "redis", not(idmill_loom)))]
pub mod redis;
mod sequence;
#[cfg(all(feature = "spanner", not(idmill_loom)))]
pub mod spanner;
#[cfg(all(feature = "sqlite", not(idmill_loom)))]
pub mod sqlite;
#[cfg(all(any(feature = "postgres", feature = "redis"), not(idmill_loom)))]
pub(crate) mod trust;
#[cfg(not(idmill_loom))]
pub(crate) mod url;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;

#[cfg(not(idmill_loom))]
pub use existing::Existing;
pub use grant::{GiveBack, Grant, Reserve};
pub use list::{Cursor, Listing, Page, Pages, Unreadable};
#[cfg(not(idmill_loom))]
pub use memory::{Fault, Faults, MemoryStore, Snapshot};
#[cfg(all(
    any(feature = "mysql", feature = "postgres", feature = "spanner", feature = "sqlite"),
    not(idmill_loom)
))]
pub use mode::Mode;
pub use sequence::{Bounds, Change, Identity, SequenceInfo};
#[cfg(not(idmill_loom))]
pub use url::{StoreUrl, connect};

/// What every call of a [`Store`] returns: a boxed future, so that the trait is object-safe. One allocation
/// for a refill costs nothing beside its round trip.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How long a grant survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Until the process ends.
    Process,
    /// A crash of the machine, once the grant has been returned.
    Disk,
}

/// What another try costs after a reserve whose outcome is unknown. It is never unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryCost {
    /// The ids that may have been reserved become a gap.
    Gap,
    /// None: the store recognises the retry and returns the same range again.
    Nothing,
}

/// What a store can do; declared, not probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// How long a grant survives.
    pub durability: Durability,
    /// What a retry costs after an unknown outcome.
    pub retry: RetryCost,
    /// Whether [`Store::reserve_many`] is one round trip. If not, each sequence is asked for on its own, so
    /// that none waits for another.
    pub batches: bool,
    /// Whether several processes may use it at the same time.
    pub shared: bool,
    /// Whether [`Store::give_back`] takes anything back.
    pub gives_back: bool,
}

/// Where sequences live. See the [module](self) for the contract that an implementation must keep.
pub trait Store: Send + Sync + fmt::Debug {
    /// What this store can do. Asked once, before anything else.
    fn capabilities(&self) -> Capabilities;

    /// Reserves the next range of a sequence, creating the sequence if it does not exist and the request
    /// [says](Reserve::create) how.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist and has to; [`ErrorKind::Exhausted`] if no id is left;
    /// [`ErrorKind::Unavailable`] if certainly nothing was reserved; [`ErrorKind::UnknownOutcome`] if that is
    /// not known; permanent kinds for what does not pass by itself.
    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>>;

    /// Reserves for several sequences in one round trip; the results are in the order of the requests, and
    /// one sequence's failure is its own. Called only if [`Capabilities::batches`] is set.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve), for each request.
    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(requests.len());
            for request in requests {
                results.push(self.reserve(request).await);
            }
            results
        })
    }

    /// Takes back the unused rest of a range if it is the end of all that was reserved: the next reserve
    /// grants it again. Returns `false` if it is not, or if the store cannot do this; the rest is then a gap.
    /// Called only if [`Capabilities::gives_back`] is set.
    ///
    /// This is one compare-and-set: `next` moves to `rest.start` on the condition that it *is*
    /// `rest.end` and that the identity is the same. It must reach the store at most once, and is never
    /// sent again: the first one may have been applied and the ids reserved by others, so that the
    /// condition holds a second time.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve). After any, the rest is a gap.
    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        let _ = back;
        Box::pin(async { Ok(false) })
    }

    /// Creates a sequence.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if there is one of this name.
    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>>;

    /// Reads a sequence; `None` if there is none of this name. Consumes nothing.
    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>>;

    /// Reads a page of the sequences. [`Pages`] reads one after the other.
    ///
    /// All pages together have every sequence that exists from the first page to the last, and none that does
    /// not exist at some time in between; a sequence may come twice. A row that cannot be read as a sequence
    /// is reported beside those that can ([`Listing::unreadable`]), and does not stop a page from being read.
    /// The store takes memory and time for a page that do not grow with the number of sequences, unless its
    /// page in the docs says otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a cursor of another store; any other error
    /// if the store cannot be read.
    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>>;

    /// Every sequence, by name: for few of them, since all are in memory at once.
    ///
    /// # Errors
    /// Those of [`list`](Self::list), and that of the first row that cannot be read.
    fn list_all(&self) -> StoreFuture<'_, Result<Vec<SequenceInfo>>> {
        Box::pin(async move {
            let (mut all, mut pages) = (Listing::default(), Pages::new(self, Page::default()));
            while let Some(page) = pages.next().await? {
                if let Some(Unreadable { error, .. }) = page.unreadable.into_iter().next() {
                    return Err(error);
                }
                all.sequences.extend(page.sequences);
            }
            Ok(all.sorted().sequences)
        })
    }

    /// Changes a sequence, as [`SequenceInfo::apply`] describes, atomically; returns it as it is now.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and those of [`SequenceInfo::apply`].
    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>>;

    /// Removes a sequence; `false` if there was none. One created later under the same
    /// name is another incarnation.
    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>>;
}

/// Reads a sequence, and creates it first if it does not exist. Several may create it at once.
pub(crate) async fn ensure(store: &dyn Store, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
    if let Some(info) = store.inspect(name).await? {
        return Ok(info);
    }
    match store.create(name, bounds).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            store.inspect(name).await?.ok_or_else(|| not_found(name).during(Operation::Create))
        }
        outcome => outcome,
    }
}

/// The error of every store for a sequence that has no id left.
pub fn exhausted(name: &SequenceName, last: u64) -> Error {
    Error::new(
        ErrorKind::Exhausted,
        format!("exhausted: {last} was its last id; raise its max or use another sequence"),
    )
    .of(name)
}

/// The error of every store for a sequence that does not exist.
pub fn not_found(name: &SequenceName) -> Error {
    Error::new(ErrorKind::NotFound, "no such sequence; create it, or reserve from it").of(name)
}

/// The error of every store for a sequence that exists already.
pub fn already_exists(name: &SequenceName) -> Error {
    Error::new(ErrorKind::AlreadyExists, "a sequence of this name exists already").of(name)
}

#[cfg(all(test, not(idmill_loom)))]
mod tests;
