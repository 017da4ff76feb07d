//! Lists the rows that belong to another history, and moves them to the current one.

use idmill::store::{Page, Reserve, SequenceInfo};
use idmill::{Error, Result, SequenceName};
use idmill_kit::Mode;
use idmill_kit::history::{Failover, Histories};

use super::calls::Calls;
use super::history;
use super::open::find;
use super::place::must_see_all;
use super::rows::{self, asks};
use super::run::read;
use super::table::Table;
use crate::history::{RowHistory, refusal};
use crate::{Executor, Statement};

/// The column of `select_history` with the row's history. The next column has the current one.
const WAS_AT: usize = 8;

/// Returns the sequences of the table that were last written in another history, each with the error that a
/// reserve would return, at most one page. A standby returns none, because it has no history of its own.
///
/// # Errors
/// [`NotFound`](idmill::ErrorKind::NotFound) if there is no table; `Conflict` if it is not idmill's; the
/// errors of reading.
pub async fn refused<E: Executor>(executor: &mut E, table: Table) -> Result<Vec<(SequenceName, Error)>> {
    let Some(here) = history::open(executor, Some(Failover::Allow)).await?.here else {
        return Ok(Vec::new());
    };
    let table = find(executor, table, Mode::ReadOnly).await?;
    let rows = read(executor, &table.select_moved(here), [Page::LIMIT.to_string().into()]).await?;
    must_see_all(executor, &table).await?;
    Ok(rows.iter().filter_map(|row| refusal([0, 1, 2].map(|column| row.text(column)))).collect())
}

impl Calls {
    /// Reads a row that a reserve did not match. Returns the row, and whether another history was the reason.
    /// If the policy allows it, this process or another has then adopted the row, and the caller tries again,
    /// unless row-level security hides the row from UPDATE.
    pub(super) async fn look_again<E: Executor>(
        &self,
        executor: &mut E,
        request: &Reserve,
    ) -> Result<(Option<SequenceInfo>, bool)> {
        let Some(here) = self.history.here else {
            return Ok((self.look(executor, &request.name).await?, false));
        };
        let rows = read(executor, &self.table.select_history(here), [request.name.as_str().into()]).await?;
        let Some(row) = rows.first() else {
            return must_see_all(executor, &self.table).await.map(|()| (None, false));
        };
        let [was, here] = [WAS_AT, WAS_AT + 1].map(|column| row.text(column).map(str::to_owned));
        let seen = RowHistory { info: rows::decode(row)?, was, here };
        let moved = seen.moved();
        if let Some(histories) = moved {
            self.adopt(executor, &seen.info, histories).await?;
        }
        let moved = moved.is_some();
        Ok((Some(seen.info), moved))
    }

    /// Moves the row to the current history, if the row and its history are still as they were
    /// read.
    async fn adopt<E: Executor>(
        &self,
        executor: &mut E,
        seen: &SequenceInfo,
        histories: Histories<'_>,
    ) -> Result<()> {
        let after = self.history.failover.adopt(seen, histories)?;
        let SequenceInfo { name, identity, .. } = seen;
        let (was, next) = (seen.reached(), after.reached());
        let values = asks(&[name, &identity.incarnation, &identity.epoch, &was, &histories.was, &next]);
        let sql = self.table.adopt(E::IN_TRANSACTION, self.history);
        if !self.write(executor, Statement::write(sql, values)).await?.is_empty() {
            self.history.failover.report(&seen.name, histories);
        }
        Ok(())
    }
}
