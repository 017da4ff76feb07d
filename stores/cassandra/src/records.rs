//! Records: rows of a table of their own, which is made for the first of them.
//!
//! No text comes again under a name, and nobody removes a record. So the condition of a write holds once, and
//! one of unknown outcome may be sent again while it holds.

use std::sync::Arc;

use idmill::store::{Cursor, Page, Records as Kept};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::Asked;
use scylla::value::CqlValue;
use tokio::sync::OnceCell;

use super::client::{Client, Serial, Statement};
use super::schema::{FORMAT, Table};
use super::sequences::{CONTENTION, LOOKS};
use super::values::{self, Cells};

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

/// What is to be written over what.
#[derive(Clone, Copy, Debug)]
struct Swap<'a> {
    name: &'a SequenceName,
    seen: Option<&'a str>,
    wanted: &'a str,
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

    pub(super) async fn read(&self, name: &SequenceName) -> Result<Option<String>> {
        match self.found().await? {
            Some(statements) => self.read_with(statements, name).await,
            None => Ok(None),
        }
    }

    async fn read_with(&self, statements: &Statements, name: &SequenceName) -> Result<Option<String>> {
        let cells = self.client.read(&statements.read, vec![values::text(name.as_str())]).await?;
        cells.map(|cells| self.decode(&cells)).transpose()
    }

    pub(super) async fn swap(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        let swap = Swap { name, seen, wanted };
        let statements = if seen.is_none() {
            self.made().await?
        } else {
            let Some(statements) = self.found().await? else { return Ok(false) };
            statements
        };
        match self.send(statements, swap).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => {
                self.settle(statements, swap, error).await
            }
            outcome => outcome,
        }
    }

    async fn send(&self, statements: &Statements, swap: Swap<'_>) -> Result<bool> {
        let (name, wanted) = (values::text(swap.name.as_str()), values::text(swap.wanted));
        match swap.seen {
            None => {
                let values = vec![name, wanted, CqlValue::Int(FORMAT)];
                self.client.write(&statements.insert, values).await
            }
            Some(seen) => {
                self.client.write(&statements.replace, vec![wanted, name, values::text(seen)]).await
            }
        }
    }

    /// Finds out about a write of unknown outcome, and sends it again while its condition holds. If something
    /// else is kept by now, it may have been applied before that, or not: that stays unknown.
    async fn settle(&self, statements: &Statements, swap: Swap<'_>, error: Error) -> Result<bool> {
        let mut contest = CONTENTION.begin();
        for _ in 0..LOOKS {
            let Ok(kept) = self.read_with(statements, swap.name).await else { break };
            if kept.as_deref() == Some(swap.wanted) {
                return Ok(true);
            }
            if kept.as_deref() != swap.seen {
                break;
            }
            match self.send(statements, swap).await {
                Ok(true) => return Ok(true),
                // Refused, by our own first copy or by another's write; or unknown again.
                _ if contest.lost(None).await.is_err() => break,
                _ => {}
            }
        }
        Err(error)
    }

    /// In the order of the ring, as sequences are listed.
    pub(super) async fn list(&self, page: &Page) -> Result<Kept> {
        if self.found().await?.is_none() {
            return Ok(Kept::default());
        }
        let after = page.after.as_ref().map(Cursor::bytes).transpose()?;
        let cql = format!("SELECT name, record, format FROM {}", self.table.cql());
        let (rows, next) = self.client.scan(&cql, self.serial, after, page.rows()).await?;
        let mut records = Kept::new(Vec::new(), next.map(|next| Cursor::of_bytes(&next)));
        for cells in rows {
            let name = cells.text("name").unwrap_or_default();
            if name.starts_with(&page.prefix) {
                records.add(name, self.decode(&cells));
            }
        }
        Ok(records)
    }

    fn decode(&self, cells: &Cells) -> Result<String> {
        let fault = match cells.text("record") {
            Ok(record) if cells.format() == Some(FORMAT) => return Ok(record.to_owned()),
            Ok(_) => "is in another format, perhaps a later version's".to_owned(),
            Err(fault) => fault,
        };
        let name = cells.text("name").unwrap_or("?");
        let message = format!("the row {name:?} of {} {fault}; nothing was changed", self.table.display());
        Err(Error::new(ErrorKind::StoreViolation, message))
    }
}
