//! The largest id in a column of a user's table.

use idmill::Result;
use idmill_kit::{ColumnPath, Largest};

use super::classify::failed;
use crate::column::{largest_sql, quoted};
use crate::{Asked, Executor, Fault, Row, Statement, Value};

/// Finds a view of this name in any schema of the database. Parameter: the name.
const LOOK: &str = "SELECT type FROM pragma_table_list WHERE name = ?1 COLLATE NOCASE AND type = 'view'";

/// Returns the largest id in a column. SQLite sorts integers below text and blobs, so `max` finds
/// any text or blob among the ids.
///
/// # Errors
/// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
/// [`Unsupported`](idmill::ErrorKind::Unsupported) if its largest value is not an integer; the errors of
/// reading.
pub async fn largest<E: Executor>(executor: &mut E, path: &ColumnPath) -> Result<Largest> {
    let (table, column) = path.table_and_column(quoted)?;
    let rows = read(executor, path, largest_sql(&table, &column, str::to_owned), []).await?;
    let row = rows.first().cloned().unwrap_or_default();
    let (Some(largest), Some(negative)) = (number(row.get(0)), number(row.get(1))) else {
        let sql = format!("SELECT typeof(max(t.{column})) FROM {table} t");
        let rows = read(executor, path, sql, []).await?;
        let of_type = rows.first().and_then(|row| row.text(0)).unwrap_or("of another type");
        return Err(path.not_of_integers(of_type));
    };
    let largest = Largest::new(largest, "INTEGER", None).negative(negative);
    Ok(largest.hidden_by(hidden_by(executor, path).await))
}

/// The number or NULL; `None` for a value of another type.
#[expect(clippy::option_option, reason = "`Some(None)` is NULL, `None` another type")]
fn number(value: &Value) -> Option<Option<i128>> {
    match value {
        Value::Null => Some(None),
        Value::Integer(id) => Some(Some(i128::from(*id))),
        _ => None,
    }
}

/// Returns `None` on versions of SQLite without `pragma_table_list`.
async fn hidden_by<E: Executor>(executor: &mut E, path: &ColumnPath) -> Option<String> {
    let table = path.parts().iter().rev().nth(1).map(String::as_str).unwrap_or_default();
    let views = read(executor, path, LOOK.to_owned(), [table.into()]).await.unwrap_or_default();
    (!views.is_empty()).then(|| "it is a view, which may hide rows of the underlying table".to_owned())
}

async fn read<E: Executor, const N: usize>(
    executor: &mut E,
    path: &ColumnPath,
    sql: String,
    values: [Value; N],
) -> Result<Vec<Row>> {
    let read = executor.execute(Statement::read(sql, values).once()).await;
    Ok(read.map_err(|fault| not_read(path, fault))?.rows)
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
