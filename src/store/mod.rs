//! Where sequences live: the [`Store`] trait, for people who use a store and for people who write one.
//!
//! # Writing a store
//!
//! A store keeps, for each sequence, the *next* id to reserve, the bounds, and an [`Identity`]. The one thing that
//! must hold, whatever crashes or is cut off, is the contract of [`Store::reserve`]: **two grants of one identity
//! never share an id**. Everything else follows from being honest about what is known:
//!
//! - Return [`ErrorKind::Unavailable`] only if the store certainly did not reserve; if a reply was lost, a commit
//!   timed out, or a connection broke after the request may have left, return [`ErrorKind::UnknownOutcome`].
//! - A grant must be as durable as [`Capabilities::durability`] says *before* it is returned: the allocator hands
//!   ids out the moment it has it.
//! - Any future may be dropped at any await point. What it had under way may be applied or not; the allocator treats
//!   a dropped reserve as lost.
//! - Never retry a write inside a store unless its condition makes a second application impossible.
//!
//! Sort the errors of your driver in one function called `classify`, and test it with errors taken from the
//! real engine. The allocator checks every grant (size, bounds, growth) and refuses nonsense, so a bug in a store
//! is loud; but it cannot see what other processes were granted.

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
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;

use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::name::SequenceName;
use crate::range::Range;

#[cfg(not(idmill_loom))]
pub use memory::{Fault, Faults, MemoryStore, Snapshot};
#[cfg(all(
    any(feature = "mysql", feature = "postgres", feature = "spanner", feature = "sqlite"),
    not(idmill_loom)
))]
pub use mode::Mode;
#[cfg(not(idmill_loom))]
pub use url::{StoreUrl, connect};

/// What every call of a [`Store`] returns: a boxed future, so that the trait is object-safe. One allocation for a
/// refill costs nothing beside its round trip.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The first and the last id of a sequence, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    start: u64,
    max: u64,
}

impl Bounds {
    /// Ids from `start` to `max`, both handed out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if `start > max`.
    pub fn new(start: u64, max: u64) -> Result<Self> {
        if start > max {
            let message = format!("start {start} is larger than max {max}; a sequence needs at least one id");
            return Err(Error::invalid(message).during(Operation::Configure));
        }
        Ok(Self { start, max })
    }

    /// What a sequence of this id type has unless told otherwise: 1 to the type's largest.
    pub fn of<T: Id>() -> Self {
        Self { start: T::MIN.max(1), max: T::MAX }
    }

    /// The first id.
    pub fn start(self) -> u64 {
        self.start
    }

    /// The last id, handed out too.
    pub fn max(self) -> u64 {
        self.max
    }
}

/// Which sequence this is, beyond its name.
///
/// A sequence that is dropped and created again under the same name gets another *incarnation* (random, never 0); one that is
/// reset or set backwards gets the next *epoch*. Ranges of different identities may overlap, so an allocator that
/// sees its sequence's identity change throws away every id it still has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Random, given when the sequence was created.
    pub incarnation: u64,
    /// Counts resets of this incarnation, from 0.
    pub epoch: u64,
}

impl Identity {
    /// The identity of a sequence that is being created now.
    pub fn fresh() -> Self {
        // From the operating system's randomness: fastrand seeds itself with the uptime and the thread's number alone,
        // which two machines, or two copies of one, can share.
        let random = RandomState::new().hash_one(fastrand::u64(..));
        // Kept within 63 bits, so that every store can hold it as the integer it has; never 0.
        Self { incarnation: (random >> 1).max(1), epoch: 0 }
    }
}

/// A request for the next range of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Which sequence.
    pub name: SequenceName,
    /// How many ids; at least 1. The grant has fewer only where the bounds end.
    pub count: u64,
    /// The largest id that the caller's type can hold: nothing above it is granted, whatever the sequence's own max.
    pub ceiling: u64,
    /// The bounds with which to create the sequence, should it not exist yet.
    pub create: Bounds,
}

/// A range that a store has reserved for this caller alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The ids; never empty.
    pub range: Range,
    /// The identity under which they were reserved.
    pub identity: Identity,
    /// The bounds of the stored sequence.
    pub bounds: Bounds,
}

#[cfg(any(
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "spanner",
    feature = "sqlite"
))]
impl Grant {
    /// Refuses what a transaction cannot use: an id below `floor`, which its type cannot hold, or fewer ids than all `count`.
    pub(crate) fn must_fit(&self, name: &SequenceName, count: u64, floor: u64, ceiling: u64) -> Result<()> {
        let first = self.range.start();
        if first < floor {
            return Err(Error::invalid(format!("the next id is {first}, which its type cannot hold")));
        }
        if self.range.len() < count {
            return Err(exhausted(name, self.bounds.max().min(ceiling)));
        }
        Ok(())
    }
}

/// The rest of a range that its owner hands back, unused: the last ids that were reserved of the sequence, as far as the owner
/// knows. No id of it was handed out, and its owner has forgotten it: it is handed back once, whatever the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// Which sequence.
    pub name: SequenceName,
    /// The identity under which the ids were reserved.
    pub identity: Identity,
    /// The ids; never empty.
    pub rest: Range,
}

/// One sequence as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceInfo {
    /// Its name.
    pub name: SequenceName,
    /// The next id that a reserve would grant; `None` once max has been reserved.
    pub next: Option<u64>,
    /// Its first and last id.
    pub bounds: Bounds,
    /// Its incarnation and epoch.
    pub identity: Identity,
}

impl SequenceInfo {
    /// How many ids can still be reserved.
    pub fn remaining(&self) -> u128 {
        self.next.map_or(0, |next| u128::from(self.bounds.max) - u128::from(next) + 1)
    }

    /// What a reserve does to a sequence: the range it grants, moving `next` on. Stores that compute in the
    /// client share this arithmetic.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`] if no id is left at or below `ceiling`.
    pub fn grant(&mut self, count: u64, ceiling: u64) -> Result<Grant> {
        let last_allowed = self.bounds.max.min(ceiling);
        let Some(start) = self.next.filter(|next| *next <= last_allowed) else {
            return Err(exhausted(&self.name, last_allowed));
        };
        // `last_allowed - start` cannot overflow, and neither can adding a length that is no larger than it plus one.
        let last = start.saturating_add(count.max(1) - 1).min(last_allowed);
        self.next = if last >= self.bounds.max { None } else { last.checked_add(1) };
        // Only the whole of u64 has a length that does not fit; the rest of it is granted by the next reserve.
        let range = Range::new(start, (last - start).saturating_add(1)).expect("last is in bounds");
        Ok(Grant { range, identity: self.identity, bounds: self.bounds })
    }

    /// What a give-back does to a sequence: `next` moves back to the start of the rest, if nothing was reserved after it and the
    /// sequence is still the same; else nothing, and `false`. Stores that compute in the client share this arithmetic.
    pub fn take_back(&mut self, back: &GiveBack) -> bool {
        let within = back.rest.start() >= self.bounds.start && !back.rest.is_empty();
        if !within || back.identity != self.identity || back.rest.end() != self.reached() {
            return false;
        }
        self.next = Some(back.rest.start());
        true
    }

    /// The first id not reserved so far: 2^64 is possible, hence the width.
    fn reached(&self) -> u128 {
        self.next.map_or(u128::from(self.bounds.max) + 1, u128::from)
    }

    /// What a [`Change`] does to a sequence.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for values that cannot be; [`ErrorKind::Conflict`] for a step backwards that was
    /// not asked for as such, or an identity that is not the expected one.
    pub fn apply(&mut self, change: &Change) -> Result<()> {
        change::apply(self, change).map_err(|error| error.of(&self.name).during(Operation::Set))
    }
}

/// A change to a stored sequence; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The next id to reserve.
    pub next: Option<u64>,
    /// The last id, inclusive.
    pub max: Option<u64>,
    /// Allow `next` to move backwards, or `max` below what was reserved already. Ids can then be handed out
    /// twice unless nobody kept those that were handed out; the epoch is raised, so that running processes drop what they hold.
    pub backwards: bool,
    /// Refuse the change unless the sequence still is this one.
    pub expect: Option<Identity>,
}

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
    /// Whether [`Store::reserve_many`] is one round trip. If not, each sequence is asked for on its own, so that none waits for another.
    pub batches: bool,
    /// Whether several processes may use it at the same time.
    pub shared: bool,
    /// Whether [`Store::give_back`] takes anything back.
    pub gives_back: bool,
}

/// Where sequences live. See the [module](self) for the contract that an implementation must keep.
pub trait Store: Send + Sync + fmt::Debug {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// Reserves the next range of a sequence, creating the sequence if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`] if not one id is left; [`ErrorKind::Unavailable`] if certainly nothing was reserved;
    /// [`ErrorKind::UnknownOutcome`] if that cannot be told; permanent kinds for what will not pass by itself.
    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>>;

    /// Reserves for several sequences in one round trip; the results are in the order of the requests, and one
    /// sequence's failure is its own. Called only if [`Capabilities::batches`] is set.
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

    /// Takes back the unused rest of a range, if it is the end of all that was reserved: the next reserve grants it again.
    /// `false` where it is not, or the store cannot do this; the rest then is a gap. Called only if [`Capabilities::gives_back`] is set.
    ///
    /// One compare-and-set, or nothing: `next` moves to `rest.start` on the condition that it *is* `rest.end`, and the identity
    /// the same. It must reach the store at most once, and is never sent again: the first may have been applied, the
    /// ids reserved by others, and the condition hold a second time.
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

    /// Every sequence, by name.
    fn list(&self) -> StoreFuture<'_, Result<Vec<SequenceInfo>>>;

    /// Changes a sequence, as [`SequenceInfo::apply`] describes, atomically; returns it as it is now.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and those of [`SequenceInfo::apply`].
    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>>;

    /// Removes a sequence; `false` if there was none. One created later under the same name is another incarnation.
    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>>;
}

/// Reads a sequence, creating it first where it does not exist; settles the race of several that create it.
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

mod change {
    use super::{Change, Error, ErrorKind, Result, SequenceInfo};

    pub(super) fn apply(info: &mut SequenceInfo, change: &Change) -> Result<()> {
        if change.expect.is_some_and(|expected| expected != info.identity) {
            return Err(refused("it is not the sequence it was: it was reset or created again meanwhile"));
        }
        let max = change.max.unwrap_or(info.bounds.max);
        if max < info.bounds.start {
            let start = info.bounds.start;
            return Err(Error::invalid(format!("max {max} is below the sequence's start {start}")));
        }
        let reached = info.reached();
        let next = change.next.map_or(reached, u128::from);
        if next < u128::from(info.bounds.start) || next > u128::from(max) + 1 {
            let start = info.bounds.start;
            if change.next.is_some() {
                return Err(Error::invalid(format!(
                    "next {next} is outside the sequence's bounds {start}..={max}"
                )));
            }
            if !change.backwards {
                return Err(refused(
                    "ids above the new max are reserved already; repeat with `backwards` if that is meant",
                ));
            }
        }
        let back = next < reached || u128::from(max) + 1 < reached;
        if back && !change.backwards {
            return Err(refused(
                "that is backwards: ids could be handed out twice; repeat with `backwards` if that is meant",
            ));
        }
        info.bounds.max = max;
        info.next = u64::try_from(next).ok().filter(|next| *next <= max);
        info.identity.epoch += u64::from(back);
        Ok(())
    }

    fn refused(message: &'static str) -> Error {
        Error::new(ErrorKind::Conflict, message)
    }
}

#[cfg(all(test, not(idmill_loom)))]
mod tests;
