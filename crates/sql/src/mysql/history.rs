//! Which server writes, by its `server_id`. A row that was last written by another may have lost what was
//! reserved last: the server is a replica that was promoted.
//!
//! The servers of a replication have different numbers, since it does not work otherwise, and keep them over
//! restarts and over moves to another machine or container. (`server_uuid` is MySQL's alone; MariaDB's
//! `server_uid` is made of a network card and a port, which change when a container is made anew, and are the
//! same in many.)

use idmill::{Error, ErrorKind, Result};
use idmill_kit::history::Failover;

use super::classify::failed;
use super::run::{text, try_read, unsigned};
use crate::history::untold;
use crate::{Asked, Executor};

/// The present history, as SQL.
pub(super) const HERE: &str = "CONCAT('server ', @@server_id)";
/// `ER_UNKNOWN_SYSTEM_VARIABLE`.
pub(super) const UNKNOWN_VARIABLE: &str = "1193";

/// What the statements say of the server, and what follows if a row was written by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// Whether it is looked at.
    pub(super) looks: bool,
    pub(super) failover: Failover,
}

impl History {
    /// In a transaction of the caller's, which is not asked how it is logged. A caller who allows everything
    /// asks for nothing.
    pub(super) fn in_transaction(failover: Failover) -> Self {
        Self { looks: failover != Failover::Allow, failover }
    }

    /// Of a server whose replicas get rows. Those that get statements would put their own number into the
    /// row, or leave it as it was.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if they get statements, and a refusal was asked for; those of
    /// the executor.
    pub(super) async fn open<E: Executor>(executor: &mut E, failover: Option<Failover>) -> Result<Self> {
        if !logs_statements(executor).await? {
            return Ok(Self { looks: true, failover: failover.unwrap_or_default() });
        }
        let message = "the server logs statements (binlog_format = STATEMENT), and its replicas cannot tell who wrote: set \
                       binlog_format to MIXED or ROW, or open the store with failover=allow (Failover::Allow)";
        untold(failover, Error::new(ErrorKind::Unsupported, message))?;
        Ok(Self { looks: false, failover: Failover::Allow })
    }

    /// The assignment, behind others.
    pub(super) fn sets(self) -> String {
        if self.looks { format!(", `history` = {HERE}") } else { String::new() }
    }

    /// The same, by a person who says where to go on; where nobody looks, as written by nobody.
    pub(super) fn sets_anew(self) -> String {
        if self.looks { self.sets() } else { ", `history` = NULL".to_owned() }
    }

    /// The value in a new row.
    pub(super) fn value(self) -> &'static str {
        if self.looks { HERE } else { "NULL" }
    }

    /// The condition, behind others.
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
        // Of a server that logs nothing but rows.
        Err(fault) if fault.code() == Some(UNKNOWN_VARIABLE) => Ok(false),
        Err(fault) => Err(failed(fault, Asked::Read)),
    }
}
