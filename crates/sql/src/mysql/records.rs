//! Records, in their own table, which is created when the first record is written.
//!
//! Names and records are bytes, so that no collation treats different ones as equal.

use idmill::store::{Page, Records};
use idmill::{Result, SequenceName};
use idmill_kit::Mode;

use super::calls::Calls;
use super::classify::{failed, is_duplicate};
use super::rows::cursor;
use super::run::{self, read, text};
use super::server;
use super::table::{LONGEST_NAME, Table, hex, within};
use crate::executor::to_write;
use crate::history::History;
use crate::rows::{legible, page_of};
use crate::{Executor, Row, Witnesses, witness};

impl Table {
    /// Returns the statement that creates the table of the records unless it exists. A store with `mode=rwc`
    /// runs it before it writes the first record.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if that table's name would be too long.
    pub fn witness_ddl(&self) -> Result<String> {
        Ok(self.witness()?.records_ddl())
    }

    /// The table of the records, in the same database.
    fn witness(&self) -> Result<Self> {
        Ok(self.beside(&witness::name_beside(self.name(), LONGEST_NAME)?))
    }

    fn records_ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {self} (
  `name` VARBINARY(200) NOT NULL PRIMARY KEY COMMENT 'UTF-8',
  `record` VARBINARY({}) NOT NULL COMMENT 'ASCII'
) ENGINE = InnoDB",
            Records::LONGEST
        )
    }

    fn select_record(&self, name: &SequenceName) -> String {
        format!("SELECT `name`, `record` FROM {self} WHERE `name` = {}", hex(name))
    }

    fn select_records(&self, page: &Page) -> Result<String> {
        Ok(format!("SELECT `name`, `record` FROM {self}{}", within(page)?))
    }

    fn insert_record(&self, name: &SequenceName, record: &str, history: History) -> String {
        let values = history.values(&format!("{}, {}", hex(name), hex(record)));
        format!("INSERT INTO {self} (`name`, `record`) {values}")
    }

    fn replace_record(&self, name: &SequenceName, seen: &str, wanted: &str, history: History) -> String {
        let (name, seen, wanted, writable) = (hex(name), hex(seen), hex(wanted), history.writable());
        format!("UPDATE {self} SET `record` = {wanted} WHERE `name` = {name} AND `record` = {seen}{writable}")
    }

    fn decode_record(&self, row: &Row) -> Result<String> {
        witness::record(&self.to_string(), &legible(row, 0), text(row, 0).and(text(row, 1)))
    }
}

impl Calls {
    /// Returns the table of the records, or `None` if there is none. Once it was found, it is
    /// cached, like the table of the sequences.
    async fn witness<E: Executor>(&self, executor: &mut E) -> Result<Option<Table>> {
        if let Some(witness) = self.witness.get() {
            return Ok(Some(witness.clone()));
        }
        let witness = self.table.witness()?;
        let there = server::has_witness(executor, &witness).await?;
        Ok(there.then(|| self.witness.get_or_init(|| witness).clone()))
    }

    /// Like [`witness`](Self::witness), but creates a missing table if the mode allows it.
    async fn witness_made<E: Executor>(&self, executor: &mut E) -> Result<Table> {
        if let Some(witness) = self.witness(executor).await? {
            return Ok(witness);
        }
        let witness = self.table.witness()?;
        if self.mode != Mode::Create {
            return Err(witness::never_made(&witness.to_string(), &witness.records_ddl()));
        }
        run::create(executor, &witness.records_ddl()).await?;
        self.witness(executor).await?.ok_or_else(|| server::unseen(&witness))
    }

    async fn first_record<E: Executor>(
        &self,
        executor: &mut E,
        name: &SequenceName,
        wanted: &str,
    ) -> Result<bool> {
        let witness = self.witness_made(executor).await?;
        match self.history.try_write(executor, &witness.insert_record(name, wanted, self.history)).await {
            Ok(_) => Ok(true),
            // The record most likely exists. FOR UPDATE reads its latest state, even if a replica answers
            // other reads.
            Err(fault) if is_duplicate(&fault) => {
                let found = read(executor, &(witness.select_record(name) + " FOR UPDATE")).await?;
                // No record was found: a user's unique index rejected the row.
                if found.is_empty() { Err(failed(fault, to_write::<E>())) } else { Ok(false) }
            }
            Err(fault) => Err(failed(fault, to_write::<E>())),
        }
    }
}

impl<E: Executor + Send> Witnesses<E> for Calls {
    async fn record(&self, executor: &mut E, name: &SequenceName) -> Result<Option<String>> {
        let Some(witness) = self.witness(executor).await? else { return Ok(None) };
        let found = read(executor, &witness.select_record(name)).await?;
        found.last().map(|row| witness.decode_record(row)).transpose()
    }

    async fn swap_record(
        &self,
        executor: &mut E,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        self.writing::<E>()?;
        let Some(seen) = seen else { return self.first_record(executor, name, wanted).await };
        let Some(witness) = self.witness(executor).await? else { return Ok(false) };
        if seen == wanted {
            // An UPDATE that writes the same value counts as no change.
            let sql = witness.select_record(name) + " FOR UPDATE";
            let found = read(executor, &sql).await?;
            let kept = found.last().map(|row| witness.decode_record(row)).transpose()?;
            return Ok(kept.as_deref() == Some(seen));
        }
        let update = witness.replace_record(name, seen, wanted, self.history);
        Ok(self.history.write(executor, &update).await?.changed == 1)
    }

    async fn list_records(&self, executor: &mut E, page: &Page) -> Result<Records> {
        let Some(witness) = self.witness(executor).await? else { return Ok(Records::default()) };
        let found = read(executor, &witness.select_records(page)?).await?;
        Ok(page_of(page, &found, cursor, |row| witness.decode_record(row)))
    }
}
