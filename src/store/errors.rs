//! Errors that all stores share.

use crate::error::{Error, ErrorKind};
use crate::name::SequenceName;

/// Returns the error for a sequence that has no id left.
pub fn exhausted(name: &SequenceName, last: u64) -> Error {
    Error::new(
        ErrorKind::Exhausted,
        format!(
            "exhausted: {last} was its last id; check that no larger id is in use (`idmill doctor --check`), then \
             raise its max"
        ),
    )
    .of(name)
}

/// Returns the error for a sequence that does not exist.
pub fn not_found(name: &SequenceName) -> Error {
    Error::new(ErrorKind::NotFound, "no such sequence; create it first").of(name).of_one_sequence()
}

/// Returns the error for a sequence that already exists.
pub fn already_exists(name: &SequenceName) -> Error {
    Error::new(ErrorKind::AlreadyExists, "a sequence with this name already exists").of(name)
}

/// Returns the error for a store that keeps no records.
pub(crate) fn no_records() -> Error {
    let message = "this store keeps no records, so it cannot be the witness of another store";
    Error::new(ErrorKind::Unsupported, message)
}
