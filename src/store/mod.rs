//! The [`Store`] trait, for users and authors of stores.
//!
//! # Writing a store
//!
//! A store keeps, for each sequence, the *next* id to reserve, the bounds, and an [`Identity`]. It must keep
//! the contract of [`Store::reserve`], even if a process crashes or a connection is lost: **two grants of one
//! identity never share an id that was not given back**. These rules follow from the contract:
//!
//! - Return [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) only if the store certainly did not
//!   reserve. If a reply was lost, a commit timed out, or a connection broke after the request may have been
//!   sent, return [`ErrorKind::UnknownOutcome`](crate::ErrorKind::UnknownOutcome).
//! - Return a grant only when it is as durable as [`Capabilities::durability`] declares: the allocator hands
//!   out its ids immediately.
//! - Any future may be dropped at any await point. Its request may be applied or not; the allocator treats a
//!   dropped reserve as lost.
//! - Never retry a write inside a store unless its condition makes a second application impossible.
//!
//! Map the errors of your driver in one function called `classify`, and test it with errors from the real
//! engine. The allocator checks every grant (size, bounds, growth) and rejects invalid ones, so most bugs in
//! a store are detected. The allocator cannot see the grants of other processes.

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
