//! Identifies the cluster that writes, and its timeline. A row that was last written on another cluster or
//! timeline may be stale: this server may be a promoted standby or a restored backup, and miss the last
//! reserves.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::history::Failover;

use super::classify::failed;
use crate::history::History;
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

/// The history in a transaction of the caller, and of statements that any driver can send.
pub(super) fn in_transaction(failover: Failover) -> History {
    History::new(CLUSTER_AND_TIMELINE, failover)
}

/// Finds the history that the server reports to this role.
///
/// # Errors
/// [`Unsupported`](ErrorKind::Unsupported) if it reports none and a policy other than [`Failover::Allow`]
/// was requested; the errors of the executor.
pub(super) async fn open<E: Executor>(executor: &mut E, failover: Option<Failover>) -> Result<History> {
    let mut fault = None;
    for here in [CLUSTER_AND_TIMELINE, CLUSTER] {
        // A standby has no history of its own, and rejects writes.
        let sql = format!("SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE {here} END");
        match executor.execute(Statement::read(sql, [])).await {
            Ok(_) => return History::told(Ok(here), failover),
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
    History::told(Err(not_told(fault)), failover)
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
