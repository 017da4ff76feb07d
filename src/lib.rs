//! Small, unique, ordered numeric ids at the speed of one atomic instruction.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(idmill_loom))]
mod allocator;
#[cfg(all(any(test, fuzzing), not(idmill_loom)))]
mod bytes;
mod core;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod id;
mod lease;
mod mailbox;
mod name;
#[cfg(all(feature = "metrics", not(idmill_loom)))]
mod observe;
#[cfg(not(idmill_loom))]
mod opening;
mod range;
mod refill;
mod registry;
mod segment;
#[cfg(not(idmill_loom))]
mod sequences;
#[cfg(not(idmill_loom))]
mod snapshot;
mod stats;
mod stock;
pub mod store;
mod sync;

#[cfg(not(idmill_loom))]
pub use allocator::{Allocator, Handle, Lease, Next};
pub use error::{Error, ErrorKind, Operation, Result, Status};
pub use id::Id;
pub use name::SequenceName;
#[cfg(not(idmill_loom))]
pub use opening::SequenceBuilder;
pub use range::{Ids, Range, Ranges};
pub use refill::Order;
#[cfg(not(idmill_loom))]
pub use sequences::{Sequences, SequencesBuilder, connect};
#[cfg(not(idmill_loom))]
pub use snapshot::{Gaps, Snapshot};
