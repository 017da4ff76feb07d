//! Running a statement, and checking how durable its answer is.

use idmill::{Error, ErrorKind, Result};

use super::classify::failed;
use super::durable::{Keeps, must_be_durable};
use crate::executor::{to_read, to_write};
use crate::{Executor, Row, Statement, Value};

/// How often others may get in between before a call gives up. Each time one of them got on.
pub const TRIES: usize = 1_000;

/// Reads.
pub(super) async fn read<E: Executor>(
    executor: &mut E,
    sql: &str,
    values: impl Into<Vec<Value>>,
) -> Result<Vec<Row>> {
    let asked = to_read::<E>();
    let answer = executor.execute(Statement::read(sql, values)).await;
    answer.map(|answer| answer.rows).map_err(|fault| failed(fault, asked))
}

/// Writes, and looks at how durably. In a transaction of the caller's that is up to its commit.
pub(super) async fn write<E: Executor>(
    executor: &mut E,
    statement: Statement<'_>,
    keeps: Keeps,
) -> Result<Vec<Row>> {
    let (asked, durable_at) = (to_write::<E>(), statement.durable_at);
    let rows = executor.execute(statement).await.map_err(|fault| failed(fault, asked))?.rows;
    if !E::IN_TRANSACTION {
        for row in &rows {
            must_be_durable(row.text(durable_at).unwrap_or_default(), keeps)?;
        }
    }
    Ok(rows)
}

/// Others were always faster; nothing was done.
pub fn crowded() -> Error {
    let message =
        format!("others changed the sequence each of the {TRIES} times that this was tried; try again");
    Error::new(ErrorKind::Unavailable, message)
}
