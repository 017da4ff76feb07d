//! One statement, and what is made of its failure.

use idmill::Result;

use super::classify::failed;
use crate::executor::{to_read, to_write};
use crate::{Answer, Executor, Fault, Row, Statement};

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
