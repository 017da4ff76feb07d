//! Statements that a session keeps prepared, and their execution.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt;
use idmill_sql::postgres::{PREPARED_IS_MISSING, Prepared, SYSTEM_IDENTIFIER};
use idmill_sql::{Row, Statement, Value};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

use super::convert::{Parameter, is_error, parameters, row_of};

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

    /// Executes the prepared statement if the session has one for this text. Otherwise, and if a pooler has
    /// switched the session, runs it unprepared.
    pub(super) async fn ask(
        &mut self,
        client: &Client,
        statement: &Statement<'_>,
        lock_timeout: &String,
        rows: &mut Vec<Row>,
    ) -> Result<(), Error> {
        let kept = self.statements.iter().find(|(sql, _)| **sql == *statement.sql);
        if let Some((_, Some(kept))) = kept {
            match execute(client, &kept.execute(&statement.values, lock_timeout), rows).await {
                Err(error) if is_elsewhere(&error) => self.stop(),
                outcome => return outcome,
            }
        }
        collect(client, &statement.sql, &parameters(&statement.values, lock_timeout), rows).await
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

    fn stop(&mut self) {
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
fn is_elsewhere(error: &Error) -> bool {
    error.as_db_error().is_some_and(|said| said.code().code() == PREPARED_IS_MISSING && is_error(said))
}

fn simple(row: &SimpleQueryRow) -> Row {
    Row::new((0..row.len()).map(|column| row.get(column).map_or(Value::Null, Value::from)).collect())
}

/// Collects rows until the server is ready for another query: only then has this one committed.
async fn collect(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let parameters = parameters.iter().map(|(value, kind)| (*value, kind.clone()));
    let mut answers = pin!(client.query_typed_raw(sql, parameters).await?);
    while let Some(row) = answers.try_next().await? {
        rows.push(row_of(&row));
    }
    Ok(())
}

/// Runs a statement without parameters, until the server is ready for another query.
async fn execute(client: &Client, sql: &str, rows: &mut Vec<Row>) -> Result<(), Error> {
    let mut answers = pin!(client.simple_query_raw(sql).await?);
    while let Some(answer) = answers.try_next().await? {
        if let SimpleQueryMessage::Row(row) = answer {
            rows.push(simple(&row));
        }
    }
    Ok(())
}
