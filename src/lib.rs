//! Small, unique, ordered numeric ids at the speed of one atomic instruction.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(idmill_loom)]
compile_error!(
    "under `--cfg idmill_loom` this source is compiled by the package `loom-tests` alone: see its README.md"
);

mod allocator;
mod core;
mod error;
mod id;
mod lease;
mod mailbox;
mod name;
mod opening;
mod pending;
mod range;
mod refill;
mod registry;
mod segment;
mod sequences;
mod snapshot;
mod stats;
mod stock;
pub mod store;
mod sync;

pub use allocator::{Allocator, Handle, Lease, Next};
pub use error::{Error, ErrorKind, Operation, Result, Status};
pub use id::Id;
pub use name::SequenceName;
pub use opening::SequenceBuilder;
pub use range::{Ids, Range, Ranges};
pub use refill::Order;
pub use sequences::{Sequences, SequencesBuilder, connect};
pub use snapshot::{Gaps, Snapshot};
