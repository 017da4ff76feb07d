//! Rows that another server wrote last: which there are, and how one goes on here.

use idmill::store::{Page, SequenceInfo};
use idmill::{Error, Result, SequenceName};
use idmill_kit::history::{Failover, Histories};

use super::history::History;
use super::run::{read, text};
use super::table::Table;
use crate::{Executor, Row};

/// Where a row that is read to be written has the history that it was written in. The present one is behind
/// it.
const WAS_AT: usize = 7;

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

    /// Whether it stands in the way of a reserve who wrote this row last.
    pub(super) fn differs(&self, history: History) -> Option<Histories<'_>> {
        self.moved().filter(|_| history.looks)
    }

    /// Where it was written, and where it is now, if that is not the same.
    pub(super) fn moved(&self) -> Option<Histories<'_>> {
        let (was, here) = (self.was.as_deref()?, self.here.as_deref()?);
        (was != here).then_some(Histories { was, here })
    }
}
