//! Which server writes, by its `server_id`. A row that was last written by another may have lost what was
//! reserved last: the server is a replica that was promoted.
//!
//! The servers of a replication have different numbers, since it does not work otherwise, and keep them over
//! restarts and over moves to another machine or container. (`server_uuid` is MySQL's alone; MariaDB's
//! `server_uid` is made of a network card and a port, which change when a container is made anew, and are the
//! same in many.)

use idmill::store::{Page, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::history::{Failover, Histories};

use super::calls::Calls;
use super::classify::failed;
use super::rows::{text, unsigned};
use super::run::{read, try_read, write};
use super::table::Table;
use crate::{Asked, Executor, Row};

/// The present history, as SQL.
pub(super) const HERE: &str = "CONCAT('server ', @@server_id)";
/// `ER_UNKNOWN_SYSTEM_VARIABLE`.
pub(super) const UNKNOWN_VARIABLE: &str = "1193";
/// Where a row that is read to be written has the history that it was written in. The present one is behind
/// it.
const WAS_AT: usize = 7;

/// What the statements say of the server, and what follows if a row was written by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// Whether it is looked at.
    looks: bool,
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
        let nothing = Self { looks: false, failover: Failover::Allow };
        if !logs_statements(executor).await? {
            return Ok(Self { looks: true, failover: failover.unwrap_or_default() });
        }
        let message = "the server logs statements (binlog_format = STATEMENT), and its replicas cannot tell who wrote: set \
                       binlog_format to MIXED or ROW, or open the store with failover=allow (Failover::Allow)";
        match failover {
            Some(Failover::Allow) => Ok(nothing),
            Some(_) => Err(Error::new(ErrorKind::Unsupported, message)),
            None => {
                tracing::warn!(cause = message, "a failover to another server will not be noticed");
                Ok(nothing)
            }
        }
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

    /// Whether it stands in the way of a reserve who wrote this row last.
    pub(super) fn differs(self, seen: &Seen) -> Option<Histories<'_>> {
        seen.moved().filter(|_| self.looks)
    }

    /// The condition, behind others.
    pub(super) fn holds(self) -> String {
        if self.looks { format!(" AND (`history` IS NULL OR `history` = {HERE})") } else { String::new() }
    }
}

impl Calls {
    /// MySQL's `server_uuid`, for [`Store::server`](idmill::store::Store::server). MariaDB has nothing that is
    /// unique.
    ///
    /// # Errors
    /// Those of the executor.
    pub async fn server<E: Executor>(&self, executor: &mut E) -> Result<Option<String>> {
        match try_read(executor, "SELECT CONCAT('MySQL server ', @@server_uuid)").await {
            Ok(rows) => Ok(rows.first().and_then(|row| text(row, 0)).map(str::to_owned)),
            Err(fault) if fault.code() == Some(UNKNOWN_VARIABLE) => Ok(None),
            Err(fault) => Err(failed(fault, Asked::Read)),
        }
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

/// The sequences of the table that another server wrote last, each with the error of a reserve that is refused
/// for it: at most a page of them.
///
/// # Errors
/// Those of reading.
pub async fn refused<E: Executor>(executor: &mut E, table: &Table) -> Result<Vec<(SequenceName, Error)>> {
    if !History::open(executor, Some(Failover::Allow)).await?.looks {
        return Ok(Vec::new());
    }
    let rows = read(executor, &table.select_moved(Page::LIMIT)).await?;
    let refused = rows.iter().filter_map(|row| {
        let name = SequenceName::new(text(row, 0)?).ok()?;
        let error = Histories { was: text(row, 1)?, here: text(row, 2)? }.refusal(&name);
        Some((name, error))
    });
    Ok(refused.collect())
}

/// A row that was read to be written.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) info: SequenceInfo,
    was: Option<String>,
    here: Option<String>,
}

impl Seen {
    pub(super) fn read(table: &Table, row: &Row) -> Result<Self> {
        let told = |column| text(row, column).map(str::to_owned);
        Ok(Self { info: table.decode(row)?, was: told(WAS_AT), here: told(WAS_AT + 1) })
    }

    /// Where it was written, and where it is now, if that is not the same.
    pub(super) fn moved(&self) -> Option<Histories<'_>> {
        let (was, here) = (self.was.as_deref()?, self.here.as_deref()?);
        (was != here).then_some(Histories { was, here })
    }
}

/// Has a row of another history go on here, if it is still as it was seen. Whoever comes later finds it so.
pub(super) async fn adopt<E: Executor>(
    executor: &mut E,
    table: &Table,
    history: History,
    seen: &SequenceInfo,
    histories: Histories<'_>,
) -> Result<()> {
    let after = history.failover.adopt(seen, histories)?;
    if write(executor, &table.adopt(seen, &after, histories.was, history)).await?.changed == 1 {
        history.failover.report(&seen.name, histories);
    }
    Ok(())
}
