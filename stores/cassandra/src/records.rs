//! Records: rows of a table of their own, which is made for the first of them.
//!
//! No text comes again under a name, and nobody removes a record. So the condition of a write holds once, and
//! one of unknown outcome may be sent again while it holds.

use std::sync::Arc;

use idmill::store::{Page, Records as Kept};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_kit::{Asked, Fault};
use scylla::value::CqlValue;
use tokio::sync::OnceCell;

use super::client::{CONTENTION, LOOKS};
use super::client::{Client, Serial, Statement};
use super::schema::{FORMAT, Table};
use super::values::{self, Cells, Values};

/// The table, with its statements once it was found.
#[derive(Clone, Debug)]
pub(super) struct Records {
    client: Client,
    table: Table,
    serial: Serial,
    create: bool,
    statements: Arc<OnceCell<Statements>>,
}

#[derive(Debug)]
struct Statements {
    read: Statement,
    insert: Statement,
    replace: Statement,
}

impl Records {
    pub(super) async fn record(&self, name: &SequenceName) -> Result<Option<String>> {
        match self.found().await? {
            Some(statements) => self.read(&statements.read, name).await,
            None => Ok(None),
        }
    }

    pub(super) async fn swap_record(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        let text = values::text;
        let (statements, values) = match seen {
            None => (self.made().await?, vec![text(name), text(wanted), CqlValue::Int(FORMAT)]),
            Some(seen) => {
                let Some(found) = self.found().await? else { return Ok(false) };
                (found, vec![text(wanted), text(name), text(seen)])
            }
        };
        self.swap(statements, name, [seen, Some(wanted)], values).await
    }

    /// In the order of the ring, as sequences are listed.
    pub(super) async fn list(&self, page: &Page) -> Result<Kept> {
        if self.found().await?.is_none() {
            return Ok(Kept::default());
        }
        let cql = format!("SELECT name, record, format FROM {}", self.table.cql());
        let (rows, next) = self.client.scan(&cql, self.serial, page).await?;
        let mut all = Kept::new(Vec::new(), next);
        for (name, cells) in rows {
            all.add(&name, self.decode(&name, &cells));
        }
        Ok(all)
    }
}

impl Records {
    pub(super) fn new(client: Client, table: Table, serial: Serial, create: bool) -> Self {
        Self { client, table, serial, create, statements: Arc::default() }
    }

    /// Its statements; `None` if the table is not there.
    async fn found(&self) -> Result<Option<&Statements>> {
        if self.statements.initialized() || self.table.is_there(&self.client).await? {
            return self.statements.get_or_try_init(|| self.prepare()).await.map(Some);
        }
        Ok(None)
    }

    /// The same, made if need and leave be.
    async fn made(&self) -> Result<&Statements> {
        if !self.statements.initialized() {
            self.table.ensure(&self.client, self.create).await?;
        }
        self.statements.get_or_try_init(|| self.prepare()).await
    }

    async fn prepare(&self) -> Result<Statements> {
        let t = self.table.cql();
        let read = format!("SELECT name, record, format FROM {t} WHERE name = ?");
        let insert = format!("INSERT INTO {t} (name, record, format) VALUES (?, ?, ?) IF NOT EXISTS");
        let replace = format!("UPDATE {t} SET record = ? WHERE name = ? IF record = ?");
        Ok(Statements {
            read: self.client.prepare(read, self.serial, Asked::Read).await?,
            insert: self.client.prepare(insert, self.serial, Asked::Write).await?,
            replace: self.client.prepare(replace, self.serial, Asked::Write).await?,
        })
    }

    async fn read(&self, statement: &Statement, name: &SequenceName) -> Result<Option<String>> {
        let cells = self.client.read(statement, vec![values::text(name)]).await?;
        cells.map(|cells| self.decode(name, &cells)).transpose()
    }

    /// Writes; finds out about a write of unknown outcome, and sends it again while its condition holds. If
    /// something else is kept by now, it may have been applied before that, or not: that stays unknown.
    async fn swap(
        &self,
        statements: &Statements,
        name: &SequenceName,
        [seen, wanted]: [Option<&str>; 2],
        values: Values,
    ) -> Result<bool> {
        let statement = if seen.is_some() { &statements.replace } else { &statements.insert };
        let unknown = match self.client.write(statement, values.clone()).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => error,
            outcome => return outcome,
        };
        let mut contest = CONTENTION.begin();
        for _ in 0..LOOKS {
            match self.read(&statements.read, name).await {
                Ok(kept) if kept.as_deref() == wanted => return Ok(true),
                Ok(kept) if kept.as_deref() == seen => {}
                _ => break,
            }
            match self.client.write(statement, values.clone()).await {
                Ok(true) => return Ok(true),
                // Refused, by our own first copy or by another's write; or unknown again.
                _ if contest.lost(None).await.is_err() => break,
                _ => {}
            }
        }
        Err(unknown)
    }

    fn decode(&self, name: &str, cells: &Cells) -> Result<String> {
        let fault = match cells.text("record") {
            Ok(record) if cells.format() == Some(FORMAT) => return Ok(record.to_owned()),
            Ok(_) => "is in another format, perhaps a later version's".to_owned(),
            Err(fault) => fault,
        };
        let what = format!("the row {name:?} of {}", self.table.display());
        Err(Fault::from(fault).error(what, "nothing was changed"))
    }
}
