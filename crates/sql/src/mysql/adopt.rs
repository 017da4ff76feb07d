//! Lists rows that another server wrote last.

use idmill::store::Page;
use idmill::{Error, Result, SequenceName};
use idmill_kit::history::Failover;

use super::history;
use super::run::{read, text};
use super::table::Table;
use crate::Executor;
use crate::history::refusal;

/// Returns the sequences of the table that another server wrote last, each with the error that a reserve
/// would return. The result has at most one page.
///
/// # Errors
/// The errors of reading.
pub async fn refused<E: Executor>(executor: &mut E, table: &Table) -> Result<Vec<(SequenceName, Error)>> {
    if history::open(executor, Some(Failover::Allow)).await?.here.is_none() {
        return Ok(Vec::new());
    }
    let rows = read(executor, &table.select_moved(Page::LIMIT)).await?;
    Ok(rows.iter().filter_map(|row| refusal([0, 1, 2].map(|column| text(row, column)))).collect())
}
