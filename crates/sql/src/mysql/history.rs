//! Identifies the server that writes by its `server_id`. A row that another server wrote last may be stale:
//! this server may be a promoted replica that misses the last reserves.
//!
//! Servers that replicate must have different ids. A server keeps its id over restarts and over moves to
//! another machine or container. (Only MySQL has `server_uuid`. MariaDB's `server_uid` is derived from a
//! network card and a port: it changes when a container is recreated, and many containers have the same.)

use idmill::{Error, ErrorKind, Result};
use idmill_kit::history::Failover;

use super::classify::failed;
use super::run::{text, try_read, unsigned};
use crate::history::History;
use crate::{Asked, Executor};

/// The current history, as an SQL expression.
pub(super) const HERE: &str = "CONCAT('server ', @@server_id)";
/// `ER_UNKNOWN_SYSTEM_VARIABLE`.
pub(super) const UNKNOWN_VARIABLE: &str = "1193";

/// The history in a transaction of the caller, where the binary log's format is not checked.
pub(super) fn in_transaction(failover: Failover) -> History {
    History::new(HERE, failover)
}

/// Checks that replicas receive rows. Replicas that receive statements would write their own `server_id`
/// into the row, or not change the row.
///
/// # Errors
/// [`Unsupported`](ErrorKind::Unsupported) if replicas receive statements and a policy other than
/// [`Failover::Allow`] was requested; the errors of the executor.
pub(super) async fn open<E: Executor>(executor: &mut E, failover: Option<Failover>) -> Result<History> {
    let message = "with binlog_format = STATEMENT, failovers are not detected; set it to MIXED or ROW, \
                   or use `failover=allow`";
    let statements = logs_statements(executor).await?;
    let here = if statements { Err(Error::new(ErrorKind::Unsupported, message)) } else { Ok(HERE) };
    History::told(here, failover)
}

async fn logs_statements<E: Executor>(executor: &mut E) -> Result<bool> {
    let found = try_read(executor, "SELECT @@GLOBAL.log_bin, @@SESSION.binlog_format").await;
    match found {
        Ok(rows) => {
            let row = rows.first();
            let binlog = row.and_then(|row| unsigned(row, 0)).unwrap_or(0);
            Ok(binlog != 0 && row.and_then(|row| text(row, 1)) == Some("STATEMENT"))
        }
        // A server without `binlog_format` logs only rows.
        Err(fault) if fault.code() == Some(UNKNOWN_VARIABLE) => Ok(false),
        Err(fault) => Err(failed(fault, Asked::Read)),
    }
}
