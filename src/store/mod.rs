//! Where sequences live: the [`Store`] trait, for people who use a store and for people who write one.
//!
//! # Writing a store
//!
//! A store keeps, for each sequence, the *next* id to reserve, the bounds, and an [`Identity`]. The one thing
//! that must hold, whatever crashes or is cut off, is the contract of [`Store::reserve`]: **two grants of one
//! identity never share an id**. Everything else follows from being honest about what is known:
//!
//! - Return [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) only if the store certainly did not
//!   reserve; if a reply was lost, a commit timed out, or a connection broke after the request may have left,
//!   return [`ErrorKind::UnknownOutcome`](crate::ErrorKind::UnknownOutcome).
//! - A grant must be as durable as [`Capabilities::durability`] says *before* it is returned: the allocator
//!   hands ids out the moment it has it.
//! - Any future may be dropped at any await point. What it had under way may be applied or not; the allocator
//!   treats a dropped reserve as lost.
//! - Never retry a write inside a store unless its condition makes a second application impossible.
//!
//! Sort the errors of your driver in one function called `classify`, and test it with errors taken from the
//! real engine. The allocator checks every grant (size, bounds, growth) and refuses nonsense, so a bug in a
//! store is loud; but it cannot see what other processes were granted.

mod bounds;
mod calls;
mod contract;
mod errors;
mod grant;
mod identity;
mod list;
mod memory;
mod records;
mod sequence;
mod shared;

pub use bounds::Bounds;
pub use contract::{Capabilities, Durability, Pages, Store, StoreFuture, ensure};
pub(crate) use errors::no_records;
pub use errors::{already_exists, exhausted, not_found};
pub use grant::{GiveBack, Grant, Reserve};
pub use identity::Identity;
pub use list::{Cursor, Listing, Page, Unreadable, page_of};
pub use memory::{MemoryStore, Snapshot};
pub use records::Records;
pub use sequence::{Change, SequenceInfo};

#[cfg(test)]
mod tests;
