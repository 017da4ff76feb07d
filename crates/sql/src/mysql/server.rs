//! Session settings, and the checks of a server and its table before a store is opened.

use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_kit::mode::MISSING_TABLE;

use super::classify::failed;
use super::run::{self, read, text, try_read, unsigned};
use super::table::{EARLIER_LAYOUT, LAYOUT, RECORDS_LAYOUT, Table};
use crate::{Asked, Executor, Fault, Row, witness};

/// Returns the first statement for each connection that an adapter opens. Each statement then commits. A wait
/// for a lock fails after half of the timeout, rounded down to seconds, but not before 1 s.
pub fn settings(timeout: Duration) -> String {
    let locks = (timeout.as_secs() / 2).max(1);
    format!("SET autocommit = 1, innodb_lock_wait_timeout = {locks}, lock_wait_timeout = {locks}")
}

/// Checks that commits survive a crash of the server's machine. Call it on each connection that an adapter
/// opens for writes, since it may lead to another server than the last. Unless the mode is read-only,
/// [`Calls::open`](super::Calls::open) checks its connection.
///
/// # Errors
/// [`Fault::Refused`] with [`Unsupported`](ErrorKind::Unsupported) if a crash may lose commits;
/// [`Fault::Answer`] for an incomplete answer; the errors of the executor.
pub async fn must_be_durable<E: Executor>(executor: &mut E) -> Result<(), Fault> {
    let sql = "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog";
    let found = try_read(executor, sql).await?;
    let value = |column: usize| found.first().and_then(|row| unsigned(row, column));
    let (Some(flush), Some(binlog), Some(sync)) = (value(0), value(1), value(2)) else {
        return Err(Fault::Answer("the server did not return its durability settings".to_owned()));
    };
    let lost = if flush != 1 {
        format!("innodb_flush_log_at_trx_commit is {flush}: set it to 1")
    } else if binlog != 0 && sync != 1 {
        // Recovery with a binary log rolls back transactions that are missing from it, even if
        // InnoDB has them.
        format!("the binary log is on, but sync_binlog is {sync}: set it to 1")
    } else {
        return Ok(());
    };
    let message = format!("a crash of the server's machine may lose commits and repeat ids; {lost}");
    Err(Fault::Refused(Error::new(ErrorKind::Unsupported, message)))
}

/// Checks the server and the table, and creates the table if the mode allows it. Returns the table
/// qualified by its database.
pub(super) async fn open<E: Executor>(
    executor: &mut E,
    table: Table,
    mode: Mode,
    place: &str,
) -> Result<Table> {
    let table = table.within(&connected_to(executor).await?);
    if mode != Mode::ReadOnly {
        must_be_durable(executor).await.map_err(|fault| failed(fault, Asked::Read))?;
    }
    if !exists(executor, &table).await? {
        create(executor, &table, mode, place).await?;
    }
    Ok(table)
}

async fn connected_to<E: Executor>(executor: &mut E) -> Result<String> {
    let found = read(executor, "SELECT DATABASE()").await?;
    let name = found.first().and_then(|row| text(row, 0));
    // The error kind is that of the server's own error (1046).
    name.map(str::to_owned).ok_or_else(|| {
        Error::invalid("no database is selected; name one in the URL or in the options of the pool")
    })
}

async fn exists<E: Executor>(executor: &mut E, table: &Table) -> Result<bool> {
    let Some(columns) = columns_of(executor, table).await? else { return Ok(false) };
    check_layout(table, &columns).map(|()| true)
}

/// Returns the columns of an InnoDB table, or `None` if there is no table.
async fn columns_of<E: Executor>(executor: &mut E, table: &Table) -> Result<Option<Vec<Row>>> {
    let found = read(executor, &table.engine()).await?;
    let Some(row) = found.first() else { return Ok(None) };
    let engine = text(row, 0);
    if !engine.is_some_and(|engine| engine.eq_ignore_ascii_case("InnoDB")) {
        let (name, engine) = (table.name(), engine.unwrap_or("NULL, as for a view"));
        let message = format!(
            "the engine of `{name}` is {engine}, not InnoDB; ALTER TABLE `{name}` ENGINE = InnoDB, \
             or use `table=NAME`"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    read(executor, &table.columns()).await.map(Some)
}

fn check_layout(table: &Table, columns: &[Row]) -> Result<()> {
    let (layout, keyed) = layout(columns);
    if layout == LAYOUT && keyed {
        return Ok(());
    }
    if layout == EARLIER_LAYOUT && keyed {
        let (name, alter) = (table.name(), table.altered());
        let message = format!(
            "the table `{name}` is of an earlier version, without the column for the last writer; run {alter}"
        );
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    Err(witness::other_columns(table.name(), &layout))
}

/// Returns the columns with their types, and whether the first is the key.
fn layout(columns: &[Row]) -> (String, bool) {
    let text = |row, column| text(row, column).unwrap_or_default();
    let layout: Vec<_> =
        columns.iter().map(|row| format!("{} {}", text(row, 0), text(row, 1).to_lowercase())).collect();
    (layout.join(", "), columns.first().is_some_and(|row| text(row, 2) == "PRI"))
}

/// Returns whether the table of the records exists, or an error if it has another layout.
pub(super) async fn has_witness<E: Executor>(executor: &mut E, witness: &Table) -> Result<bool> {
    let Some(columns) = columns_of(executor, witness).await? else { return Ok(false) };
    let (layout, keyed) = layout(&columns);
    if layout == RECORDS_LAYOUT && keyed {
        return Ok(true);
    }
    Err(witness::not_ours(&witness.to_string(), &layout))
}

/// If several processes create the table at the same time, all find it afterwards.
async fn create<E: Executor>(executor: &mut E, table: &Table, mode: Mode, place: &str) -> Result<()> {
    let name = table.name();
    if mode != Mode::Create {
        let message = format!("there is no table `{name}` at {place}; {MISSING_TABLE}");
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    run::create(executor, &table.ddl()).await?;
    if exists(executor, table).await? {
        return Ok(());
    }
    Err(unseen(table))
}

/// The error for a table that was just created and is not visible.
pub(super) fn unseen(table: &Table) -> Error {
    let message = format!("the table {table} was created but is not visible; grant the user SELECT on it");
    Error::new(ErrorKind::Denied, message)
}
