//! The largest id in a column of the user's own.

use idmill::Result;
use idmill::store::{ColumnPath, Largest};

use super::classify::failed;
use crate::column::quoted;
use crate::{Asked, Executor, Fault, Statement, Value};

/// Looks for the largest id in a column. SQLite sorts every integer below every text and blob, so that one of
/// those among the ids is what is found.
///
/// # Errors
/// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
/// [`Unsupported`](idmill::ErrorKind::Unsupported) if it holds anything but integers; those of reading.
pub async fn largest<E: Executor>(executor: &mut E, path: &ColumnPath) -> Result<Largest> {
    let (table, column) = path.table_and_column(quoted)?;
    // Named with its table: a column that is not there would be taken for a text otherwise.
    let sql = format!("SELECT max(t.{column}), typeof(max(t.{column})) FROM {table} AS t");
    let read = executor.execute(Statement::read(sql, []).once()).await;
    let rows = read.map_err(|fault| not_read(path, fault))?.rows;
    let row = rows.first().cloned().unwrap_or_default();
    match row.get(0) {
        Value::Null => Ok(Largest::new(None, "INTEGER", None)),
        Value::Integer(id) => Ok(Largest::new(i128::from(*id), "INTEGER", None)),
        _ => Err(path.not_of_integers(row.text(1).unwrap_or("of another type"))),
    }
}

fn not_read(path: &ColumnPath, fault: Fault) -> idmill::Error {
    let message = fault.message().unwrap_or_default();
    if message.contains("no such table") || message.contains("unknown database") {
        return path.missing("table");
    }
    if message.contains("no such column") {
        return path.missing("column");
    }
    failed(fault, Asked::Read)
}
