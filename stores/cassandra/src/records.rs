//! Records, which are rows of a separate table. The first record creates the table.
//!
//! The same text is never written twice under one name, and records are never removed. So a condition that
//! fails once never holds again. A write of unknown outcome can be resent while its condition holds.

use idmill::store::{Page, Records};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_kit::InvalidRow;
use scylla::value::CqlValue;
use tokio::sync::OnceCell;

use super::CassandraStore;
use super::connection::Statement;
use super::schema::{FORMAT, Table};
use super::values::{self, Cells};

const COLUMNS: &str = "name, record, format";

/// The table of records.
#[derive(Debug)]
pub(super) struct RecordTable {
    table: Table,
    create: bool,
    /// Set once the table is known to exist.
    found: OnceCell<()>,
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
        let (text, records, t) = (values::text, &self.records, self.records.table.cql());
        let (cql, values) = match seen {
            None => {
                records.make().await?;
                let cql = format!("INSERT INTO {t} ({COLUMNS}) VALUES (?, ?, ?) IF NOT EXISTS");
                (cql, vec![text(name), text(wanted), CqlValue::Int(FORMAT)])
            }
            Some(_) if !records.is_there().await? => return Ok(false),
            Some(seen) => {
                let cql = format!("UPDATE {t} SET record = ? WHERE name = ? IF record = ?");
                (cql, vec![text(wanted), text(name), text(seen)])
            }
        };
        records.swap(name, [seen, Some(wanted)], &records.table.write(cql, values)).await
    }

    /// Lists the records in ring order, without sorting the pages.
    pub(super) async fn try_list_records(&self, page: &Page) -> Result<Records> {
        let records = &self.records;
        if !records.is_there().await? {
            return Ok(Records::default());
        }
        let decode = |name: &str, cells: &Cells| records.decode(name, cells);
        let cql = format!("SELECT {COLUMNS} FROM {}", records.table.cql());
        records.table.client.scan(&cql, records.table.serial, page, decode).await
    }
}

impl RecordTable {
    pub(super) fn new(table: Table, create: bool) -> Self {
        Self { table, create, found: OnceCell::new() }
    }

    /// Returns whether the table exists. Queries the schema only until the table is found.
    async fn is_there(&self) -> Result<bool> {
        let found = self.found.initialized() || self.table.is_there().await?;
        if found {
            self.found.set(()).ok();
        }
        Ok(found)
    }

    /// Creates the table if it is missing and the options allow it.
    async fn make(&self) -> Result<()> {
        self.found.get_or_try_init(|| self.table.ensure(self.create)).await.copied()
    }

    async fn kept(&self, name: &SequenceName) -> Result<Option<String>> {
        let read = self.table.read(COLUMNS, "name = ?", vec![values::text(name)]);
        let cells = self.table.client.read(&read).await?;
        cells.map(|cells| self.decode(name, &cells)).transpose()
    }

    /// Writes a record. After an unknown outcome, the row is read, and the write is resent while its
    /// condition holds. If the row holds another record, the write may have been applied before that one,
    /// so the outcome stays unknown.
    async fn swap(
        &self,
        name: &SequenceName,
        [seen, wanted]: [Option<&str>; 2],
        statement: &Statement,
    ) -> Result<bool> {
        let unknown = match self.table.client.write(statement).await {
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
        self.table.client.settle(statement, (true, unknown), look).await
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
