//! Runs a statement and checks how durable its rows are.

use idmill::{Error, ErrorKind, Result};

use super::classify::failed;
use super::durable::{Keeps, must_be_durable};
use crate::executor::{to_read, to_write};
use crate::{Answer, Executor, Fault, Row, Statement, Value};

/// The number of tries before a call gives up because others changed the row. Each time, another
/// caller makes progress.
pub const TRIES: usize = 1_000;

/// Runs a statement that reads.
pub(super) async fn read<E: Executor>(
    executor: &mut E,
    sql: &str,
    values: impl Into<Vec<Value>>,
) -> Result<Vec<Row>> {
    let asked = to_read::<E>();
    let answer = executor.execute(Statement::read(sql, values)).await;
    answer.map(|answer| answer.rows).map_err(|fault| failed(fault, asked))
}

/// Returns the rows of an answer to a write, after a check of the durability that they report in this column.
/// In a transaction of the caller, durability depends on the caller's commit.
pub(super) fn written<E: Executor>(
    answer: Result<Answer, Fault>,
    durable_at: usize,
    keeps: Keeps,
) -> Result<Vec<Row>> {
    let rows = answer.map_err(|fault| failed(fault, to_write::<E>()))?.rows;
    if !E::IN_TRANSACTION {
        for row in &rows {
            must_be_durable(row.text(durable_at).unwrap_or_default(), keeps)?;
        }
    }
    Ok(rows)
}

/// The error after too many concurrent changes; nothing was reserved.
pub fn crowded() -> Error {
    let message =
        format!("other processes changed the sequence or its table in each of {TRIES} attempts; try again");
    Error::new(ErrorKind::Unavailable, message)
}
