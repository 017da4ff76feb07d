//! Which cluster writes, and on which of its timelines. A row that was last written on another may have lost
//! what was reserved last: the server is a standby that was promoted, or a backup that was put back.

use idmill::store::kit::history::{Failover, Histories};
use idmill::store::{Mode, Page, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName};

use super::calls::Calls;
use super::classify::failed;
use super::open::find;
use super::rows::{self, reached};
use super::run::read;
use super::table::Table;
use crate::{Asked, Executor, Fault, Patience, Statement, Value};

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
/// Where a row that is read for it says in which history it was written. The present one is behind it.
const WAS_AT: usize = 8;

/// What the statements say of the server's history, and what follows if a row was written in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// The present history, as SQL; `None` where it is not looked at.
    here: Option<&'static str>,
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
        let nothing = Self { here: None, failover: Failover::Allow };
        match (failover, fault) {
            (Some(Failover::Allow), _) => Ok(nothing),
            (Some(_), fault) => Err(not_told(fault)),
            (None, fault) => {
                tracing::warn!(cause = %not_told(fault), "a failover to another server, or a restore, will not be noticed");
                Ok(nothing)
            }
        }
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

/// The sequences of the table that were last written in another history than the present one, each with the
/// error of a reserve that is refused for it: at most a page of them. None on a standby, which has no history
/// of its own.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) without the table; those of reading.
pub async fn refused<E: Executor>(executor: &mut E, table: Table) -> Result<Vec<(SequenceName, Error)>> {
    let Some(here) = History::open(executor, Some(Failover::Allow)).await?.here else {
        return Ok(Vec::new());
    };
    let table = find(executor, table, Mode::ReadOnly).await?;
    let rows = read(executor, &table.select_moved(here), [Page::LIMIT.to_string().into()]).await?;
    let refused = rows.iter().filter_map(|row| {
        let name = SequenceName::new(row.text(0)?).ok()?;
        let error = Histories { was: row.text(1)?, here: row.text(2)? }.refusal(&name);
        Some((name, error))
    });
    Ok(refused.collect())
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

impl Calls {
    /// The row, and whether it stands in the way of a reserve that it was written in another history. If the
    /// row may be adopted, that is done; the caller then tries again.
    pub(super) async fn look_again<E: Executor>(
        &self,
        executor: &mut E,
        request: &Reserve,
        patience: Patience,
    ) -> Result<(Option<SequenceInfo>, Adopted)> {
        let Some(here) = self.history.here else {
            return Ok((self.inspect(executor, &request.name).await?, Adopted::Not));
        };
        let rows = read(executor, &self.table.select_history(here), [request.name.as_str().into()]).await?;
        let Some(row) = rows.first() else { return Ok((None, Adopted::Not)) };
        let seen = rows::decode(row)?;
        let (Some(was), Some(here)) = (row.text(WAS_AT), row.text(WAS_AT + 1)) else {
            return Ok((Some(seen), Adopted::Not));
        };
        if was == here {
            return Ok((Some(seen), Adopted::Not));
        }
        self.adopt(executor, &seen, Histories { was, here }, patience).await?;
        Ok((Some(seen), Adopted::Tried))
    }

    /// Has the row go on here, if it is still as it was seen, in the history that was seen.
    async fn adopt<E: Executor>(
        &self,
        executor: &mut E,
        seen: &SequenceInfo,
        histories: Histories<'_>,
        patience: Patience,
    ) -> Result<()> {
        let after = self.history.failover.adopt(seen, histories)?;
        let values = [
            seen.name.as_str().into(),
            seen.identity.incarnation.to_string().into(),
            seen.identity.epoch.to_string().into(),
            reached(seen).to_string().into(),
            histories.was.into(),
            reached(&after).to_string().into(),
            Value::Patience,
        ];
        let sql = self.table.adopt(E::IN_TRANSACTION, self.history);
        if !self.write(executor, Statement::write(sql, values).with_patience(patience)).await?.is_empty() {
            self.history.failover.report(&seen.name, histories);
        }
        Ok(())
    }
}

/// Whether a row of another history was in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adopted {
    /// It was not.
    Not,
    /// It was, and this process or another has had it go on.
    Tried,
}
