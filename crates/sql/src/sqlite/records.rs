//! Records, in their own table, which is created when the first record is written.

use idmill::store::{Page, Records};
use idmill::{Result, SequenceName};
use idmill_kit::Mode;

use super::calls::Calls;
use super::rows::{columns, cursor};
use super::session::{Session, in_transaction};
use super::table::{LONGEST_NAME, Table, select_page};
use crate::rows::{legible, page_of};
use crate::witness::{self, COLUMNS};
use crate::{Answer, Executor, Row, Statement, Witnesses};

/// The column of a page's row that has the name as bytes.
const NAME_AS_BYTES: usize = 2;

impl Table {
    /// Returns the statement that creates the table of the records unless it exists. A store with `mode=rwc`
    /// runs it before it writes the first record.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if that table's name would be too long.
    pub fn witness_ddl(&self) -> Result<String> {
        Ok(self.witness()?.records_ddl())
    }

    /// The table of the records.
    fn witness(&self) -> Result<Self> {
        witness::name_beside(self.name(), LONGEST_NAME).map(|name| Self(name.into()))
    }

    fn records_ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (
  name TEXT NOT NULL PRIMARY KEY CHECK (typeof(name) = 'text'),
  record TEXT NOT NULL CHECK (typeof(record) = 'text')
) WITHOUT ROWID",
            self.sql()
        )
    }

    /// Returns whether the table exists, or an error if it has other columns.
    fn has_records(&self, answer: &Answer) -> Result<bool> {
        let columns = columns(answer);
        if columns.is_empty() || columns == COLUMNS.join(", ") {
            return Ok(!columns.is_empty());
        }
        Err(witness::not_ours(&self.sql(), &columns))
    }

    fn select_record(&self, name: &SequenceName) -> Statement<'static> {
        let sql = format!("SELECT name, record FROM {} WHERE name = ?1", self.sql());
        Statement::read(sql, [name.as_str().into()])
    }

    fn write_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Statement<'static> {
        let table = self.sql();
        let mut values = vec![name.as_str().into(), wanted.into()];
        let Some(seen) = seen else {
            return Statement::write(format!("INSERT INTO {table} (name, record) VALUES (?1, ?2)"), values);
        };
        values.push(seen.into());
        Statement::write(format!("UPDATE {table} SET record = ?2 WHERE name = ?1 AND record = ?3"), values)
    }

    fn decode_record(&self, row: &Row) -> Result<String> {
        witness::record(&self.sql(), &legible(row, 0), row.text(0).and(row.text(1)))
    }
}

impl<E: Executor + Send> Witnesses<Session<E>> for Calls {
    async fn record(&self, session: &mut Session<E>, name: &SequenceName) -> Result<Option<String>> {
        let Some(witness) = session.witness().await? else { return Ok(None) };
        let answer = session.read(witness.select_record(name)).await?;
        answer.rows.first().map(|row| witness.decode_record(row)).transpose()
    }

    async fn swap_record(
        &self,
        session: &mut Session<E>,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        let witness = session.table.witness()?;
        session.begin().await?;
        let outcome = session.try_swap_record(&witness, name, (seen, wanted), self.0).await;
        session.end(outcome).await
    }

    async fn list_records(&self, session: &mut Session<E>, page: &Page) -> Result<Records> {
        let Some(witness) = session.witness().await? else { return Ok(Records::default()) };
        let answer = session.read(select_page(&witness.sql(), &COLUMNS.join(", "), page)?).await?;
        let (name, decode) = (|row: &Row| cursor(row, NAME_AS_BYTES), |row: &Row| witness.decode_record(row));
        Ok(page_of(page, &answer.rows, name, decode))
    }
}

impl<E: Executor> Session<E> {
    /// Returns the table of the records if it exists.
    async fn witness(&mut self) -> Result<Option<Table>> {
        let witness = self.table.witness()?;
        self.check().await?;
        let columns = self.read(witness.columns()).await?;
        Ok(witness.has_records(&columns)?.then_some(witness))
    }

    async fn try_swap_record(
        &mut self,
        witness: &Table,
        name: &SequenceName,
        (seen, wanted): (Option<&str>, &str),
        mode: Mode,
    ) -> Result<bool> {
        let columns = self.db.execute(witness.columns()).await.map_err(in_transaction)?;
        let is_there = witness.has_records(&columns)?;
        let stored = if is_there {
            let found = self.db.execute(witness.select_record(name)).await.map_err(in_transaction)?;
            found.rows.first().map(|row| witness.decode_record(row)).transpose()?
        } else {
            None
        };
        if stored.as_deref() != seen {
            return Ok(false);
        }
        if !is_there {
            self.create_witness(witness, mode).await?;
        }
        self.write(witness.write_record(name, seen, wanted)).await.map(|()| true)
    }

    async fn create_witness(&mut self, witness: &Table, mode: Mode) -> Result<()> {
        if mode != Mode::Create {
            return Err(witness::never_made(&witness.sql(), &witness.records_ddl()));
        }
        let created = self.db.execute(Statement::write(witness.records_ddl(), []).once()).await;
        created.map(drop).map_err(in_transaction)
    }
}
