//! The table of the records, beside that of the sequences, which is alike in all dialects but for its
//! columns' types.

use idmill::{Error, ErrorKind, Result};

pub(crate) use idmill_kit::witness_beside as name_beside;

/// Its columns, in the order in which rows are read.
pub(crate) const COLUMNS: [&str; 2] = ["name", "record"];

/// The table is not there, and is not to be created.
pub(crate) fn never_made(table: &str, ddl: &str) -> Error {
    let message = format!(
        "there is no table {table} to keep records in, and the store was opened so that it creates none; if it was there \
         before, restore it: made anew, it has forgotten what it witnessed; if this is new, open the store with mode=rwc (Mode::Create), or \
         create it: {ddl}"
    );
    Error::new(ErrorKind::NotFound, message)
}

/// The table has other columns, in that order.
pub(crate) fn not_ours(table: &str, columns: &str) -> Error {
    let message = format!(
        "the table {table} is there, where records are to be kept, but it has the columns {columns}; keep them in a store with \
         another table of sequences, whose records have a table of their own"
    );
    Error::new(ErrorKind::Conflict, message)
}

/// The record of a row, if that is a text under a name.
pub(crate) fn record(table: &str, name: &str, record: Option<&str>) -> Result<String> {
    record.map(str::to_owned).ok_or_else(|| {
        let message = format!("the row {name:?} of {table} is no text under a name; nothing was changed");
        Error::new(ErrorKind::StoreViolation, message)
    })
}
