//! Small, unique, ordered numeric ids at the speed of one atomic instruction.

mod error;
mod id;
mod name;
mod range;
pub mod store;

pub use error::{Error, ErrorKind, Operation, Result, Status};
pub use id::Id;
pub use name::SequenceName;
pub use range::{Ids, Range, Ranges};
