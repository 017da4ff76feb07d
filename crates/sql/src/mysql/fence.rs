//! Rejects writes on a read-only server. `read_only` fences a former primary, but does not stop a user with
//! the privilege `SUPER`, `CONNECTION_ADMIN` or `READ ONLY ADMIN`: that user would reserve the ids that the
//! new primary reserves too. `super_read_only` sets `read_only` as well.

use idmill::{Error, ErrorKind};

use super::run::{try_read, unsigned};
use crate::history::History;
use crate::{Answer, Executor, Fault, Statement};

/// Whether the server is writable, as an SQL expression. New versions of MariaDB have words, not numbers.
pub(super) const WRITABLE: &str = "CAST(@@GLOBAL.read_only AS CHAR) IN ('0', 'OFF')";

impl History {
    /// The condition that the server is writable, to append to other conditions. The server evaluates the
    /// condition while `SET GLOBAL read_only` waits for the statement. Replicas must not evaluate it.
    pub(super) fn writable(self) -> String {
        if self.here.is_some() { format!(" AND {WRITABLE}") } else { String::new() }
    }

    /// The values of a new row, as a query that has no row on a read-only server.
    pub(super) fn values(self, values: &str) -> String {
        if self.here.is_some() {
            format!("SELECT {values} FROM DUAL WHERE {WRITABLE}")
        } else {
            format!("VALUES ({values})")
        }
    }

    /// Sends a statement with this condition. A statement without the condition follows a query.
    pub(super) async fn send<E: Executor>(
        self,
        executor: &mut E,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        if self.here.is_none() {
            must_be_writable(executor).await?;
        }
        let answer = executor.execute(statement).await?;
        if self.here.is_some() && answer.changed == 0 {
            must_be_writable(executor).await?;
        }
        Ok(answer)
    }
}

/// Checks that the server is writable. Otherwise the connection is closed: after a failover, the next one may
/// lead to the primary.
pub(super) async fn must_be_writable<E: Executor>(executor: &mut E) -> Result<(), Fault> {
    let rows = try_read(executor, &format!("SELECT {WRITABLE}")).await?;
    if rows.first().and_then(|row| unsigned(row, 0)) == Some(1) {
        return Ok(());
    }
    executor.discard();
    let message = "`read_only` is set on the server, although this user may write; write to the primary";
    Err(Fault::Refused(Error::new(ErrorKind::Unavailable, message)))
}
