//! The table of the records, beside that of the sequences, which is alike in all dialects but for its
//! columns' types.

use idmill::{Error, ErrorKind};

pub(crate) use idmill_kit::{never_made, witness_beside as name_beside};

/// Its columns, in the order in which rows are read.
pub(crate) const COLUMNS: [&str; 2] = ["name", "record"];

/// The table has other columns, in that order.
pub(crate) fn not_ours(table: &str, columns: &str) -> Error {
    let message = format!(
        "the table {table} is there, where records are to be kept, but it has the columns {columns}; keep them in a store with \
         another table of sequences, whose records have a table of their own"
    );
    Error::new(ErrorKind::Conflict, message)
}

/// A row whose record cannot be read.
pub(crate) fn unsound(table: &str, name: &str) -> Error {
    let message = format!("the row {name:?} of {table} is no text under a name; nothing was changed");
    Error::new(ErrorKind::StoreViolation, message)
}
