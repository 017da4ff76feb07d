//! Statements that a session keeps prepared, and their execution.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt;
use idmill_sql::postgres::{PREPARED_IS_MISSING, Prepared, SYSTEM_IDENTIFIER};
use idmill_sql::{Row, Statement, Value};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

use super::convert::{is_error, parameters, row_of};

/// The statements of reserves that a session has run. Each is prepared after its second run, because many
/// sessions run it only once.
pub(super) struct ReserveStatements {
    statements: Vec<(String, Option<Prepared>)>,
    /// Whether the store's sessions keep prepared statements. `false` for shared sessions, which other code
    /// may use next, and behind a pooler.
    keeping: Arc<AtomicBool>,
}

impl ReserveStatements {
    pub(super) fn new(keeping: Arc<AtomicBool>) -> Self {
        Self { statements: Vec::new(), keeping }
    }

    /// Returns the SQL that executes the prepared statement, if the session has one for this text.
    pub(super) fn prepared(&self, statement: &Statement<'_>, lock_timeout: &str) -> Option<String> {
        let (_, kept) = self.statements.iter().find(|(sql, _)| **sql == *statement.sql)?;
        kept.as_ref().map(|kept| kept.execute(&statement.values, lock_timeout))
    }

    /// Prepares a statement that was run before, and returns whether the session is still usable. The outcome
    /// of the statement is already known and does not depend on the preparation.
    pub(super) async fn keep(
        &mut self,
        client: &Client,
        statement: &Statement<'_>,
        deadline: Instant,
    ) -> bool {
        if !self.keeping.load(Ordering::Relaxed) || !self.is_due(statement) {
            return true;
        }
        match timeout_at(deadline, prepare(client, statement)).await {
            Ok(Ok(prepared)) => {
                self.statements.retain(|(sql, _)| **sql != *statement.sql);
                self.statements.push((statement.sql.clone().into_owned(), Some(prepared)));
                true
            }
            Ok(Err(error)) if error.as_db_error().is_some() => {
                self.stop();
                false
            }
            _ => false,
        }
    }

    fn is_due(&mut self, statement: &Statement<'_>) -> bool {
        match self.statements.iter().find(|(sql, _)| **sql == *statement.sql) {
            Some((_, kept)) => kept.is_none(),
            None if Prepared::wants(statement).is_some() => {
                self.statements.push((statement.sql.clone().into_owned(), None));
                false
            }
            None => false,
        }
    }

    pub(super) fn stop(&mut self) {
        self.keeping.store(false, Ordering::Relaxed);
        self.statements.clear();
    }
}

/// Prepares a statement in a transaction, so that one session both reports its cluster and prepares the
/// statement, even behind a pooler.
async fn prepare(client: &Client, statement: &Statement<'_>) -> Result<Prepared, Error> {
    let asks = Prepared::wants(statement) == Some(true);
    let begin = if asks { format!("BEGIN; {SYSTEM_IDENTIFIER}") } else { "BEGIN".to_owned() };
    let mut told = Vec::new();
    execute(client, &begin, &mut told).await?;
    let prepared = Prepared::new(statement, told.first().and_then(|row| row.text(0)));
    client.batch_execute(&format!("{}; COMMIT", prepared.prepare())).await?;
    Ok(prepared)
}

/// Whether the session lacks the prepared statement: a pooler has switched to another session. A statement
/// with this error changed nothing, even if a trigger raised the error.
pub(super) fn is_elsewhere(error: &Error) -> bool {
    error.as_db_error().is_some_and(|said| said.code().code() == PREPARED_IS_MISSING && is_error(said))
}

fn simple(row: &SimpleQueryRow) -> Row {
    Row::new((0..row.len()).map(|column| row.get(column).map_or(Value::Null, Value::from)).collect())
}

/// Runs a statement with this lock timeout, until the server is ready for another query: only then has this
/// one committed.
pub(super) async fn collect(
    client: &Client,
    statement: &Statement<'_>,
    lock_timeout: &str,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let parameters = parameters(&statement.values, &lock_timeout);
    let mut answers = pin!(client.query_typed_raw(&statement.sql, parameters).await?);
    while let Some(row) = answers.try_next().await? {
        rows.push(row_of(&row));
    }
    Ok(())
}

/// Runs a statement without parameters, until the server is ready for another query.
pub(super) async fn execute(client: &Client, sql: &str, rows: &mut Vec<Row>) -> Result<(), Error> {
    let mut answers = pin!(client.simple_query_raw(sql).await?);
    while let Some(answer) = answers.try_next().await? {
        if let SimpleQueryMessage::Row(row) = answer {
            rows.push(simple(&row));
        }
    }
    Ok(())
}
