//! Records, which are rows of a separate table. The first record creates the table.
//!
//! The same text is never written twice under one name, and records are never removed. So a condition that
//! fails once never holds again. A write of unknown outcome can be resent while its condition holds.

use std::sync::atomic::{AtomicBool, Ordering};

use idmill::store::{Page, Records};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_kit::{Asked, InvalidRow};
use scylla::value::CqlValue;

use super::CassandraStore;
use super::client::{Client, Serial, Statement};
use super::schema::{FORMAT, Table};
use super::values::{self, Cells, Values};

/// The table and its statements.
#[derive(Debug)]
pub(super) struct RecordTable {
    client: Client,
    table: Table,
    serial: Serial,
    create: bool,
    /// Whether the table is known to exist.
    found: AtomicBool,
    read: Statement,
    insert: Statement,
    replace: Statement,
}

impl CassandraStore {
    pub(super) async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        if self.records.is_there().await? { self.records.kept(name).await } else { Ok(None) }
    }

    pub(super) async fn try_swap_record(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        let (text, records) = (values::text, &self.records);
        let values = match seen {
            None => {
                records.make().await?;
                vec![text(name), text(wanted), CqlValue::Int(FORMAT)]
            }
            Some(_) if !records.is_there().await? => return Ok(false),
            Some(seen) => vec![text(wanted), text(name), text(seen)],
        };
        records.swap(name, [seen, Some(wanted)], values).await
    }

    /// Lists the records in ring order, without sorting the pages.
    pub(super) async fn try_list_records(&self, page: &Page) -> Result<Records> {
        let RecordTable { client, table, serial, .. } = &*self.records;
        if !self.records.is_there().await? {
            return Ok(Records::default());
        }
        let cql = format!("SELECT name, record, format FROM {}", table.cql());
        client.scan(&cql, *serial, page, |name, cells| self.records.decode(name, cells)).await
    }
}

impl RecordTable {
    pub(super) fn new(client: Client, table: Table, serial: Serial, create: bool) -> Self {
        let t = table.cql();
        let read = format!("SELECT name, record, format FROM {t} WHERE name = ?");
        let insert = format!("INSERT INTO {t} (name, record, format) VALUES (?, ?, ?) IF NOT EXISTS");
        let replace = format!("UPDATE {t} SET record = ? WHERE name = ? IF record = ?");
        Self {
            read: Statement { cql: read, serial, asked: Asked::Read },
            insert: Statement { cql: insert, serial, asked: Asked::Write },
            replace: Statement { cql: replace, serial, asked: Asked::Write },
            client,
            table,
            serial,
            create,
            found: AtomicBool::new(false),
        }
    }

    /// Returns whether the table exists. Queries the schema only until the table is found.
    async fn is_there(&self) -> Result<bool> {
        let found = self.is_found() || self.table.is_there(&self.client).await?;
        self.found.fetch_or(found, Ordering::Relaxed);
        Ok(found)
    }

    /// Creates the table if it is missing and the options allow it.
    async fn make(&self) -> Result<()> {
        if !self.is_found() {
            self.table.ensure(&self.client, self.create).await?;
            self.found.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Relaxed: no other data depends on this value. A thread with a stale value queries the schema again.
    fn is_found(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    async fn kept(&self, name: &SequenceName) -> Result<Option<String>> {
        let cells = self.client.read(&self.read, vec![values::text(name)]).await?;
        cells.map(|cells| self.decode(name, &cells)).transpose()
    }

    /// Writes a record. After an unknown outcome, the row is read, and the write is resent while its
    /// condition holds. If the row holds another record, the write may have been applied before that one,
    /// so the outcome stays unknown.
    async fn swap(
        &self,
        name: &SequenceName,
        [seen, wanted]: [Option<&str>; 2],
        values: Values,
    ) -> Result<bool> {
        let statement = if seen.is_some() { &self.replace } else { &self.insert };
        let unknown = match self.client.write(statement, values.clone()).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => error,
            outcome => return outcome,
        };
        let look = || async {
            match self.kept(name).await?.as_deref() {
                kept if kept == wanted => Ok(Some(true)),
                kept if kept == seen => Ok(None),
                _ => Err(ErrorKind::UnknownOutcome.into()),
            }
        };
        self.client.settle((statement, &values), (true, unknown), look).await
    }

    fn decode(&self, name: &str, cells: &Cells) -> Result<String> {
        let fault = match cells.text("record") {
            Ok(record) if cells.format() == Some(FORMAT) => return Ok(record.to_owned()),
            Ok(_) => "is in another format, perhaps of a later version".to_owned(),
            Err(fault) => fault,
        };
        let what = format!("the row {name:?} of {}", self.table.display());
        Err(InvalidRow::from(fault).error(what, "nothing was changed"))
    }
}
