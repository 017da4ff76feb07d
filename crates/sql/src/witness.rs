//! The table of the records, next to the table of the sequences. Only the types of its columns
//! differ between dialects. Also the errors for tables that are not idmill's.

use idmill::{Error, ErrorKind, Result};

pub(crate) use idmill_kit::{never_made, witness_beside as name_beside};

/// The columns of the table of records, in the order in which rows are read.
pub(crate) const COLUMNS: [&str; 2] = ["name", "record"];

/// The error for a table with other columns; `columns` lists them.
pub(crate) fn not_ours(table: &str, columns: &str) -> Error {
    let message = format!(
        "{table} is not a records table (its columns are {columns}); set `table=NAME` for the records table \
         `NAME_witness`"
    );
    Error::new(ErrorKind::Conflict, message)
}

/// The error for a table of sequences with other columns.
pub(crate) fn other_columns(table: &str, columns: &str) -> Error {
    let message = format!(
        "the table `{table}` has other columns: {columns}; name another table with `table=NAME` (`table(NAME)` in \
         code)"
    );
    Error::new(ErrorKind::Conflict, message)
}

/// Returns the record of a row if it is text under a name.
pub(crate) fn record(table: &str, name: &str, record: Option<&str>) -> Result<String> {
    record.map(str::to_owned).ok_or_else(|| {
        let message = format!("the row {name:?} of {table} is not a valid record; nothing was changed");
        Error::new(ErrorKind::StoreViolation, message)
    })
}
