//! Running one statement: its failure, and the columns of its answer. Drivers differ in whether a column
//! is text, bytes or a number to them.

use idmill::Result;

use super::classify::failed;
use crate::executor::{to_read, to_write};
use crate::{Answer, Executor, Fault, Row, Statement, Value};

/// Reads.
pub(super) async fn read<E: Executor>(executor: &mut E, sql: &str) -> Result<Vec<Row>> {
    try_read(executor, sql).await.map_err(|fault| failed(fault, to_read::<E>()))
}

/// As [`read`], with the fault as it is.
pub(super) async fn try_read<E: Executor>(executor: &mut E, sql: &str) -> Result<Vec<Row>, Fault> {
    executor.execute(Statement::read(sql, Vec::new())).await.map(|answer| answer.rows)
}

/// Changes something.
pub(super) async fn write<E: Executor>(executor: &mut E, sql: &str) -> Result<Answer> {
    let outcome = try_write(executor, sql).await;
    outcome.map_err(|fault| failed(fault, to_write::<E>()))
}

/// As [`write`], with the fault as it is.
pub(super) async fn try_write<E: Executor>(executor: &mut E, sql: &str) -> Result<Answer, Fault> {
    executor.execute(Statement::write(sql, Vec::new())).await
}

/// Text, or bytes that are text.
pub(super) fn text(row: &Row, column: usize) -> Option<&str> {
    str::from_utf8(bytes(row, column)?).ok()
}

/// A number, or its digits.
pub(super) fn unsigned(row: &Row, column: usize) -> Option<u64> {
    match row.get(column) {
        Value::Integer(value) => u64::try_from(*value).ok(),
        _ => text(row, column)?.parse().ok(),
    }
}

pub(super) fn bytes(row: &Row, column: usize) -> Option<&[u8]> {
    match row.get(column) {
        Value::Bytes(bytes) => Some(bytes),
        Value::Text(text) => Some(text.as_bytes()),
        _ => None,
    }
}
