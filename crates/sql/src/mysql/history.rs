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
use crate::history::untold;
use crate::{Asked, Executor};

/// The current history, as an SQL expression.
pub(super) const HERE: &str = "CONCAT('server ', @@server_id)";
/// `ER_UNKNOWN_SYSTEM_VARIABLE`.
pub(super) const UNKNOWN_VARIABLE: &str = "1193";

/// How statements check the server, and the policy if another server wrote a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// Whether statements check the history, and that the server is writable.
    pub(super) looks: bool,
    pub(super) failover: Failover,
}

impl History {
    /// The history in a transaction of the caller, where the binary log's format is not checked.
    /// With [`Failover::Allow`] the history is not checked.
    pub(super) fn in_transaction(failover: Failover) -> Self {
        Self { looks: failover != Failover::Allow, failover }
    }

    /// Checks that replicas receive rows. Replicas that receive statements would write their own `server_id`
    /// into the row, or not change the row.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if replicas receive statements and a policy other than
    /// [`Failover::Allow`] was requested; the errors of the executor.
    pub(super) async fn open<E: Executor>(executor: &mut E, failover: Option<Failover>) -> Result<Self> {
        if !logs_statements(executor).await? {
            return Ok(Self { looks: true, failover: failover.unwrap_or_default() });
        }
        let message = "with binlog_format = STATEMENT, failovers are not detected; set it to MIXED or ROW, \
                       or use `failover=allow`";
        untold(failover, Error::new(ErrorKind::Unsupported, message))?;
        Ok(Self { looks: false, failover: Failover::Allow })
    }

    /// The assignment of `history`, to append to other assignments.
    pub(super) fn sets(self) -> String {
        if self.looks { format!(", `history` = {HERE}") } else { String::new() }
    }

    /// The assignment in a `set` with a new `next`; NULL if histories are not checked.
    pub(super) fn sets_anew(self) -> String {
        if self.looks { self.sets() } else { ", `history` = NULL".to_owned() }
    }

    /// The value of `history` in a new row.
    pub(super) fn value(self) -> &'static str {
        if self.looks { HERE } else { "NULL" }
    }

    /// The condition on `history`, to append to other conditions.
    pub(super) fn holds(self) -> String {
        if self.looks { format!(" AND (`history` IS NULL OR `history` = {HERE})") } else { String::new() }
    }
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
