//! Identifies the cluster that writes, and its timeline. A row that was last written on another cluster or
//! timeline may be stale: this server may be a promoted standby or a restored backup, and miss the last
//! reserves.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::history::Failover;

use super::classify::failed;
use crate::history::untold;
use crate::{Asked, Executor, Fault, Statement};

/// The cluster's identifier, a number. The server reads the identifier from a file, so it does not change
/// during a session.
pub(super) const SYSTEM: &str = "(SELECT system_identifier::text FROM pg_control_system())";
/// The cluster and its timeline. After a promotion, `pg_control_checkpoint()` returns the previous
/// timeline for a while; the current WAL file has the new timeline immediately.
const CLUSTER_AND_TIMELINE: &str = "'cluster ' || (SELECT system_identifier::text FROM pg_control_system()) \
                                    || ', timeline ' || ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0')";
/// Only the cluster, for engines without access to the write-ahead log, such as Aurora.
const CLUSTER: &str = "'cluster ' || (SELECT system_identifier::text FROM pg_control_system())";
/// `insufficient_privilege`.
const DENIED: &str = "42501";

/// How statements check the server's history, and the policy if a row was written in another history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// The current history as an SQL expression; `None` if it is not checked.
    pub(super) here: Option<&'static str>,
    pub(super) failover: Failover,
}

impl History {
    /// The history in a transaction of the caller. A missing or denied function would end that
    /// transaction, so [`Failover::Allow`] calls no function.
    pub(super) fn in_transaction(failover: Failover) -> Self {
        let here = if failover == Failover::Allow { None } else { Some(CLUSTER_AND_TIMELINE) };
        Self { here, failover }
    }

    /// Finds the history that the server reports to this role.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if it reports none and a policy other than [`Failover::Allow`]
    /// was requested; the errors of the executor.
    pub(super) async fn open<E: Executor>(executor: &mut E, failover: Option<Failover>) -> Result<Self> {
        let mut fault = None;
        for here in [CLUSTER_AND_TIMELINE, CLUSTER] {
            // A standby has no history of its own, and rejects writes.
            let sql = format!("SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE {here} END");
            match executor.execute(Statement::read(sql, [])).await {
                Ok(_) => return Ok(Self { here: Some(here), failover: failover.unwrap_or_default() }),
                Err(missing) if is_missing(&missing) => fault = Some(missing),
                // Do not fall back to only the cluster identifier: a role that may read the timeline would
                // write a different history.
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

    /// The column `here` of a statement's `session` part.
    pub(super) fn column(self) -> String {
        self.here.map(|here| format!(", {here} AS here")).unwrap_or_default()
    }

    /// The assignment of the current history, to append to other assignments.
    pub(super) fn sets(self) -> &'static str {
        if self.here.is_some() { ", history = session.here" } else { "" }
    }

    /// The assignment in a `set` with a new `next`; NULL if the current history is
    /// unknown.
    pub(super) fn sets_anew(self) -> &'static str {
        if self.here.is_some() { self.sets() } else { ", history = NULL" }
    }

    /// Like [`sets`](Self::sets), for a statement without the `session` part.
    pub(super) fn sets_here(self) -> String {
        self.here.map(|here| format!(", history = {here}")).unwrap_or_default()
    }

    /// Like [`holds`](Self::holds), for a statement without the `session` part.
    pub(super) fn holds_here(self) -> String {
        let holds = |here| format!(" AND (s.history IS NULL OR s.history = {here})");
        self.here.map(holds).unwrap_or_default()
    }

    /// The value of `history` in a new row.
    pub(super) fn value(self) -> &'static str {
        if self.here.is_some() { "session.here" } else { "NULL" }
    }

    /// The condition that the row was written in the current history, to append to other conditions.
    pub(super) fn holds(self) -> &'static str {
        if self.here.is_some() { " AND (s.history IS NULL OR s.history = session.here)" } else { "" }
    }
}

/// The history for a statement that any driver can send.
pub(super) fn published() -> &'static str {
    CLUSTER_AND_TIMELINE
}

/// Whether this kind of server lacks the function, or does not support it.
fn is_missing(fault: &Fault) -> bool {
    matches!(fault.code(), Some("42883" | "0A000" | "55000" | "XX000"))
}

fn not_told(fault: Option<Fault>) -> Error {
    let message = "cannot read the cluster's id; GRANT EXECUTE ON FUNCTION pg_control_system() TO the role, \
                   or use `failover=allow`";
    let error = Error::new(ErrorKind::Unsupported, message);
    match fault {
        Some(fault) => error.because(failed(fault, Asked::Read)),
        None => error,
    }
}

/// Returns the cluster of this database, for [`Store::server`](idmill::store::Store::server); `None` if the
/// server does not support this, or if this role may not read it.
///
/// # Errors
/// The errors of the executor.
pub async fn server<E: Executor>(executor: &mut E) -> Result<Option<String>> {
    let sql = format!("SELECT 'PostgreSQL ' || {CLUSTER}");
    match executor.execute(Statement::read(sql, [])).await {
        Ok(answer) => Ok(answer.rows.first().and_then(|row| row.text(0)).map(str::to_owned)),
        Err(fault) if is_missing(&fault) || fault.code() == Some(DENIED) => Ok(None),
        Err(fault) => Err(failed(fault, Asked::Read)),
    }
}
