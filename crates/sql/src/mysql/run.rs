//! Runs one statement, converts its fault, and reads the columns of its answer. Drivers return a
//! column as text, bytes or a number.

use idmill::Result;

use super::classify::failed;
use super::fence::must_be_writable;
use crate::executor::{to_read, to_write};
use crate::history::History;
use crate::{Answer, Asked, Executor, Fault, Row, Statement, Value};

/// Runs a statement that reads.
pub(super) async fn read<E: Executor>(executor: &mut E, sql: &str) -> Result<Vec<Row>> {
    try_read(executor, sql).await.map_err(|fault| failed(fault, to_read::<E>()))
}

/// Like [`read`], but returns the fault.
pub(super) async fn try_read<E: Executor>(executor: &mut E, sql: &str) -> Result<Vec<Row>, Fault> {
    executor.execute(Statement::read(sql, Vec::new())).await.map(|answer| answer.rows)
}

impl History {
    /// Runs a statement that writes, with the condition [`writable`](Self::writable).
    pub(super) async fn write<E: Executor>(self, executor: &mut E, sql: &str) -> Result<Answer> {
        let outcome = self.try_write(executor, sql).await;
        outcome.map_err(|fault| failed(fault, to_write::<E>()))
    }

    /// Like [`write`](Self::write), but returns the fault.
    pub(super) async fn try_write<E: Executor>(self, executor: &mut E, sql: &str) -> Result<Answer, Fault> {
        self.send(executor, Statement::write(sql, Vec::new())).await
    }
}

/// Creates a table, unless the server is read-only.
pub(super) async fn create<E: Executor>(executor: &mut E, ddl: &str) -> Result<()> {
    let created = async {
        must_be_writable(executor).await?;
        executor.execute(Statement::write(ddl, Vec::new())).await
    };
    // Classify this as a read: if the outcome is unknown, the next read shows it.
    created.await.map(drop).map_err(|fault| failed(fault, Asked::Read))
}

/// Returns text, or bytes that are valid UTF-8.
pub(super) fn text(row: &Row, column: usize) -> Option<&str> {
    str::from_utf8(bytes(row, column)?).ok()
}

/// Returns a number, or parses its digits.
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
