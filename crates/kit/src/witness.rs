//! The table of records next to the table of sequences.

use idmill::{Error, ErrorKind, Operation, Result};

const DEFAULT_TABLE: &str = "idmill_sequences";
const SUFFIX: &str = "_witness";

/// Returns the name of the records table for a table of sequences: `idmill_witness` for `idmill_sequences`,
/// and a separate table for each other table. If the default name is written in another case, the records
/// table keeps the case of `idmill`, so that an engine that ignores case has one records table.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if this name has more than `longest` bytes.
pub fn witness_beside(table: &str, longest: usize) -> Result<String> {
    let name = match table.split_at_checked("idmill".len()) {
        Some((idmill, _)) if table.eq_ignore_ascii_case(DEFAULT_TABLE) => idmill.to_owned() + SUFFIX,
        // The default table's witness is already named `idmill` plus the suffix.
        Some((idmill, "")) if idmill.eq_ignore_ascii_case("idmill") => format!("{idmill}_sequences{SUFFIX}"),
        _ => format!("{table}{SUFFIX}"),
    };
    if name.len() <= longest {
        return Ok(name);
    }
    let message = format!(
        "the records table `{name}` of `{table}` has a name longer than {longest}; use a table name of at \
         most {} characters",
        longest - SUFFIX.len()
    );
    Err(Error::invalid(message).during(Operation::Connect))
}

/// Returns the error for a missing records table that must not be created.
pub fn never_made(table: &str, ddl: &str) -> Error {
    let message = format!(
        "there is no table {table} for records; restore it, or for a new witness use `mode=rwc` \
         (`Mode::Create`) or run {ddl}"
    );
    Error::new(ErrorKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use idmill::ErrorKind;

    #[test]
    fn each_table_of_sequences_has_another_of_records() {
        let tables = ["idmill_sequences", "idmill", "t", "idmill_sequences_", "IDMILL", "Idmill_sequences"];
        let names: Vec<_> = tables.iter().map(|table| witness_beside(table, 63).unwrap()).collect();
        assert_eq!(names[..3], ["idmill_witness", "idmill_sequences_witness", "t_witness"]);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), tables.len(), "{names:?}");
        assert_eq!(names[5], "Idmill_witness");
        assert_eq!(witness_beside("orders", 63).unwrap(), "orders_witness", "as long as `idmill`");
    }

    #[test]
    fn a_name_that_would_be_cut_off_is_refused() {
        assert_eq!(witness_beside(&"t".repeat(55), 63).unwrap().len(), 63);
        let error = witness_beside(&"t".repeat(56), 63).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let table = "t".repeat(56);
        let message = format!(
            "connect: the records table `{table}_witness` of `{table}` has a name longer than 63; use a table name of at \
             most 55 characters"
        );
        assert_eq!(error.to_string(), message);
        let missing = never_made("t", "DDL");
        let message = "there is no table t for records; restore it, or for a new witness use `mode=rwc` (`Mode::Create`) or \
                       run DDL";
        assert_eq!((missing.kind(), missing.to_string().as_str()), (ErrorKind::NotFound, message));
    }
}
