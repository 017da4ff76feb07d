//! The errors that all stores have in common.

use crate::error::{Error, ErrorKind};
use crate::name::SequenceName;

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

/// The error of every store that keeps no records.
pub(crate) fn no_records() -> Error {
    let message = "this store keeps no records, so it cannot be the witness of another store";
    Error::new(ErrorKind::Unsupported, message)
}
