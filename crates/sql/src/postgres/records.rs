//! Records, in their own table, which is created when the first record is written.

use idmill::store::{Page, Records};
use idmill::{Result, SequenceName};
use idmill_kit::Mode;

use super::calls::Calls;
use super::durable::WRITTEN;
use super::open::run_ddl;
use super::place::{Lookup, look, must_see_all};
use super::rows::{asks, cursor, name, of_page};
use super::run::{TRIES, crowded, read, written};
use super::table::{LONGEST_NAME, Table, session};
use crate::rows::page_of;
use crate::witness::{self, COLUMNS};
use crate::{Executor, Row, Statement, Witnesses};

impl Table {
    /// Returns the statement that creates the table of the records unless it exists. A store with `mode=rwc`
    /// runs it before it writes the first record.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if that table's name would be too long.
    pub fn witness_ddl(&self) -> Result<String> {
        Ok(self.witness()?.records_ddl())
    }

    /// The table of the records, in the same schema.
    fn witness(&self) -> Result<Self> {
        Ok(self.beside(&witness::name_beside(self.name(), LONGEST_NAME)?))
    }

    fn records_ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (
  name text COLLATE \"C\" PRIMARY KEY,
  record text COLLATE \"C\" NOT NULL
) WITH (fillfactor = 50)",
            self.sql()
        )
    }

    fn select_record(&self) -> String {
        format!("SELECT s.name::text, s.record::text FROM {} AS s WHERE s.name = $1", self.sql())
    }

    /// Selects a page. Parameters: the last name of the previous page, the prefix and the number of rows.
    fn select_records(&self) -> String {
        format!(
            "SELECT s.name::text, s.record::text FROM {} AS s WHERE s.name COLLATE \"C\" > $1 \
             AND s.name COLLATE \"C\" >= $2 AND left(s.name, length($2)) = $2 ORDER BY s.name COLLATE \"C\" \
             LIMIT $3::bigint",
            self.sql()
        )
    }

    /// Adds a record unless one of its name exists. Parameters: name, record, lock timeout.
    fn insert_record(&self) -> String {
        format!(
            "{} INSERT INTO {} AS s (name, record) SELECT $1, $2 FROM session ON CONFLICT (name) DO NOTHING \
             RETURNING (SELECT durable FROM session), txid_current()::text AS xid",
            session(false, 3),
            self.sql()
        )
    }

    /// Replaces a record. Parameters: name, new record, lock timeout, expected record.
    fn replace_record(&self) -> String {
        format!(
            "{} UPDATE {} AS s SET record = $2 FROM session WHERE s.name = $1 AND s.record = $4 RETURNING {WRITTEN}",
            session(false, 3),
            self.sql()
        )
    }

    fn decode_record(&self, row: &Row) -> Result<String> {
        witness::record(&self.sql(), name(row), row.text(1))
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
        let Lookup::There(found) = look(executor, witness.schema(), witness.name()).await? else {
            return Ok(None);
        };
        if !found.is_table_of(&COLUMNS) {
            return Err(witness::not_ours(&witness.sql(), &found.columns));
        }
        witness.must_last(&found, "its records are lost")?;
        Ok(Some(self.witness.get_or_init(|| witness).clone()))
    }

    /// Like [`witness`](Self::witness), but creates a missing table if the mode allows it.
    async fn witness_made<E: Executor>(&self, executor: &mut E) -> Result<Table> {
        for _ in 0..TRIES {
            if let Some(witness) = self.witness(executor).await? {
                return Ok(witness);
            }
            let witness = self.table.witness()?;
            if self.mode != Mode::Create {
                return Err(witness::never_made(&witness.sql(), &witness.records_ddl()));
            }
            run_ddl(executor, witness.records_ddl()).await?;
        }
        Err(crowded())
    }
}

impl<E: Executor + Clone + Send + Sync> Witnesses<E> for Calls {
    async fn record(&self, executor: &mut E, name: &SequenceName) -> Result<Option<String>> {
        let Some(witness) = self.witness(executor).await? else { return Ok(None) };
        let found = read(executor, &witness.select_record(), [name.as_str().into()]).await?;
        let Some(row) = found.first() else {
            return must_see_all(executor, &witness).await.map(|()| None);
        };
        witness.decode_record(row).map(Some)
    }

    async fn swap_record(
        &self,
        executor: &mut E,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        self.writing::<E>()?;
        let mut values = asks(&[name, &wanted]);
        let sql = match seen {
            None => self.witness_made(executor).await?.insert_record(),
            Some(seen) => {
                let Some(witness) = self.witness(executor).await? else { return Ok(false) };
                values.push(seen.into());
                witness.replace_record()
            }
        };
        let answer = executor.execute(Statement::write(sql, values)).await;
        Ok(!written::<E>(answer, 0, self.keeps)?.is_empty())
    }

    async fn list_records(&self, executor: &mut E, page: &Page) -> Result<Records> {
        let Some(witness) = self.witness(executor).await? else { return Ok(Records::default()) };
        let found = read(executor, &witness.select_records(), of_page(page)).await?;
        must_see_all(executor, &witness).await?;
        Ok(page_of(page, &found, cursor, |row| witness.decode_record(row)))
    }
}
