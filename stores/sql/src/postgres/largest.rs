//! The largest id in a column of the user's own.

use idmill::Result;
use idmill::store::{ColumnPath, Largest};

use super::quoted;
use super::run::read;
use crate::Executor;
use crate::column::of_digits;

/// Whether the table is there, and the type of the column in it, a domain's own. Parameters: the table, as
/// SQL writes it; the column.
const LOOK: &str = "SELECT to_regclass($1)::text, \
     (SELECT format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL) \
      FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
      WHERE a.attrelid = to_regclass($1) AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped)";

/// Looks for the largest id in a column.
///
/// # Errors
/// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
/// [`Unsupported`](idmill::ErrorKind::Unsupported) if it holds no integers; those of reading.
pub async fn largest<E: Executor>(executor: &mut E, path: &ColumnPath) -> Result<Largest> {
    let (table, column) = path.table_and_column(quoted)?;
    let name = path.parts().last().map(String::as_str).unwrap_or_default();
    let rows = read(executor, LOOK, [table.as_str().into(), name.into()]).await?;
    let found = |column| rows.first().and_then(|row| row.text(column));
    if found(0).is_none() {
        return Err(path.missing("table"));
    }
    let of_type = found(1).ok_or_else(|| path.missing("column"))?;
    let holds = match of_type {
        "smallint" => Some(i16::MAX.unsigned_abs().into()),
        "integer" => Some(i32::MAX.unsigned_abs().into()),
        "bigint" => Some(i64::MAX.unsigned_abs()),
        "numeric" => None,
        other => return Err(path.not_of_integers(other)),
    };
    let rows = read(executor, &format!("SELECT max({column})::text FROM {table}"), []).await?;
    of_digits(path, rows.first().and_then(|row| row.text(0)), of_type, holds)
}
