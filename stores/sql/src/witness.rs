//! The table of the records, beside that of the sequences, which is alike in all dialects but for its columns'
//! types.

use idmill::{Error, ErrorKind, Operation, Result};

/// Its columns, in the order in which rows are read.
pub(crate) const COLUMNS: [&str; 2] = ["name", "record"];

const DEFAULT_TABLE: &str = "idmill_sequences";
const SUFFIX: &str = "_witness";

/// What it is called beside this table of sequences: another for each of them. Some engines take upper and
/// lower case of the default for the same table, so the records are then in the same table too.
pub(crate) fn name_beside(table: &str, longest: usize) -> Result<String> {
    let name = match table.split_at_checked("idmill".len()) {
        Some((idmill, _)) if table.eq_ignore_ascii_case(DEFAULT_TABLE) => idmill.to_owned() + SUFFIX,
        // That name is taken by the default's.
        Some((idmill, "")) if idmill.eq_ignore_ascii_case("idmill") => format!("{idmill}_sequences{SUFFIX}"),
        _ => format!("{table}{SUFFIX}"),
    };
    if name.len() <= longest {
        return Ok(name);
    }
    let message = format!(
        "records are kept in a table `{name}` beside `{table}`, and that name is longer than {longest} characters; keep them in \
         a store whose table has a name of at most {}",
        longest - SUFFIX.len()
    );
    Err(Error::invalid(message).during(Operation::Connect))
}

/// The table is not there, and is not to be created.
pub(crate) fn never_made(table: &str, ddl: &str) -> Error {
    let message = format!(
        "there is no table {table} to keep records in, and the store was opened so that it creates none; if it was there \
         before, restore it: made anew, it has forgotten what it witnessed; if this is new, open the store with mode=rwc, or \
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

/// A row whose record cannot be read.
pub(crate) fn unsound(table: &str, name: &str) -> Error {
    let message = format!("the row {name:?} of {table} is no text under a name; nothing was changed");
    Error::new(ErrorKind::StoreViolation, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_table_of_sequences_has_another_of_records() {
        let tables = ["idmill_sequences", "idmill", "t", "idmill_sequences_", "IDMILL", "Idmill_sequences"];
        let names: Vec<_> = tables.iter().map(|table| name_beside(table, 63).unwrap()).collect();
        assert_eq!(names[..3], ["idmill_witness", "idmill_sequences_witness", "t_witness"]);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), tables.len(), "{names:?}");
        assert_eq!(names[5], "Idmill_witness");
    }

    #[test]
    fn a_name_that_would_be_cut_off_is_refused() {
        assert_eq!(name_beside(&"t".repeat(55), 63).unwrap().len(), 63);
        let error = name_beside(&"t".repeat(56), 63).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("at most 55"), "{error}");
    }
}
