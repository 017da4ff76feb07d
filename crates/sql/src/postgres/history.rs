//! Which cluster writes, and on which of its timelines. A row that was last written on another may have lost
//! what was reserved last: the server is a standby that was promoted, or a backup that was put back.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::history::Failover;

use super::classify::failed;
use crate::history::untold;
use crate::{Asked, Executor, Fault, Statement};

/// The cluster, a number. It is read from a file, and is the same for as long as a session lasts.
pub(super) const SYSTEM: &str = "(SELECT system_identifier::text FROM pg_control_system())";
/// The cluster and its timeline. The timeline of `pg_control_checkpoint()` would be that of before, for a
/// while after a promotion; that of the file that is being written is the present one at once.
const CLUSTER_AND_TIMELINE: &str = "'cluster ' || (SELECT system_identifier::text FROM pg_control_system()) \
                                    || ', timeline ' || ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0')";
/// The cluster alone, where there is no write-ahead log to ask about, as in Aurora.
const CLUSTER: &str = "'cluster ' || (SELECT system_identifier::text FROM pg_control_system())";
/// `insufficient_privilege`.
const DENIED: &str = "42501";

/// What the statements say of the server's history, and what follows if a row was written in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// The present history, as SQL; `None` where it is not looked at.
    pub(super) here: Option<&'static str>,
    pub(super) failover: Failover,
}

impl History {
    /// In a transaction of the caller's, where a function that is missing or denied would end the
    /// transaction. So a caller who allows everything asks for none.
    pub(super) fn in_transaction(failover: Failover) -> Self {
        let here = if failover == Failover::Allow { None } else { Some(CLUSTER_AND_TIMELINE) };
        Self { here, failover }
    }

    /// What this role is told by this server.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if that is nothing, and a refusal was asked for.
    pub(super) async fn open<E: Executor>(executor: &mut E, failover: Option<Failover>) -> Result<Self> {
        let mut fault = None;
        for here in [CLUSTER_AND_TIMELINE, CLUSTER] {
            // A standby has no history of its own, and refuses what writes.
            let sql = format!("SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE {here} END");
            match executor.execute(Statement::read(sql, [])).await {
                Ok(_) => return Ok(Self { here: Some(here), failover: failover.unwrap_or_default() }),
                Err(missing) if is_missing(&missing) => fault = Some(missing),
                // Others may be told more: with less than they write, the rows of each would be strange to
                // the other.
                Err(denied) if denied.code() == Some(DENIED) => {
                    fault = Some(denied);
                    break;
                }
                Err(fault) => return Err(failed(fault, Asked::Read)),
            }
        }
        untold(failover, not_told(fault))?;
        Ok(Self { here: None, failover: Failover::Allow })
    }

    /// The column `here` of a statement's first part.
    pub(super) fn column(self) -> String {
        self.here.map(|here| format!(", {here} AS here")).unwrap_or_default()
    }

    /// That the row is written in the present history, behind other assignments.
    pub(super) fn sets(self) -> &'static str {
        if self.here.is_some() { ", history = session.here" } else { "" }
    }

    /// The same, by a person who says where to go on; where the present one is not known, in none.
    pub(super) fn sets_anew(self) -> &'static str {
        if self.here.is_some() { self.sets() } else { ", history = NULL" }
    }

    /// As [`sets`](Self::sets), in a statement without such a first part.
    pub(super) fn sets_here(self) -> String {
        self.here.map(|here| format!(", history = {here}")).unwrap_or_default()
    }

    /// As [`holds`](Self::holds), in a statement without such a first part.
    pub(super) fn holds_here(self) -> String {
        let holds = |here| format!(" AND (s.history IS NULL OR s.history = {here})");
        self.here.map(holds).unwrap_or_default()
    }

    /// The value in a new row.
    pub(super) fn value(self) -> &'static str {
        if self.here.is_some() { "session.here" } else { "NULL" }
    }

    /// That the row was written in the present history, behind other conditions.
    pub(super) fn holds(self) -> &'static str {
        if self.here.is_some() { " AND (s.history IS NULL OR s.history = session.here)" } else { "" }
    }
}

/// Of a statement that any driver sends.
pub(super) fn published() -> &'static str {
    CLUSTER_AND_TIMELINE
}

/// A function that this kind of server does not have, or that has nothing to say there.
fn is_missing(fault: &Fault) -> bool {
    matches!(fault.code(), Some("42883" | "0A000" | "55000" | "XX000"))
}

fn not_told(fault: Option<Fault>) -> Error {
    let message = "the server does not tell this role which cluster it is: GRANT EXECUTE ON FUNCTION pg_control_system() TO the role; \
                   where there is no such function, open the store with failover=allow (Failover::Allow)";
    let error = Error::new(ErrorKind::Unsupported, message);
    match fault {
        Some(fault) => error.because(failed(fault, Asked::Read)),
        None => error,
    }
}

/// The cluster that keeps everything in this database, for
/// [`Store::server`](idmill::store::Store::server); `None` where this role is not told.
///
/// # Errors
/// Those of the executor.
pub async fn server<E: Executor>(executor: &mut E) -> Result<Option<String>> {
    let sql = format!("SELECT 'PostgreSQL ' || {CLUSTER}");
    match executor.execute(Statement::read(sql, [])).await {
        Ok(answer) => Ok(answer.rows.first().and_then(|row| row.text(0)).map(str::to_owned)),
        Err(fault) if is_missing(&fault) || fault.code() == Some(DENIED) => Ok(None),
        Err(fault) => Err(failed(fault, Asked::Read)),
    }
}
