//! Records, in a table of their own, which is created when the first of them is written.

use gcloud_googleapis::spanner::v1::Mutation;
use gcloud_spanner::mutation;
use gcloud_spanner::row::Row;
use gcloud_spanner::statement::Statement;
use gcloud_spanner::transaction_rw::ReadWriteTransaction;
use idmill::store::{Cursor, Page, Records, StoreFuture};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::witness_beside;

use super::classify::{client_failed, is_missing_table};
use super::database::{Database, Mutations, Step, is, read};
use super::schema::{LONGEST_NAME, Table};

const COLUMNS: &str = "name, record";

impl Table {
    /// The table of the records, beside this one.
    fn witness(&self) -> Result<Self> {
        witness_beside(&self.0, LONGEST_NAME).map(|name| Self(name.into()))
    }

    /// The statement that creates the table of the records.
    pub(super) fn witness_ddl(&self) -> Result<String> {
        Ok(self.witness()?.records_ddl())
    }

    fn records_ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS `{}` (
  name STRING(200) NOT NULL,
  record STRING({}) NOT NULL,
) PRIMARY KEY (name)",
            self.0,
            Records::LONGEST
        )
    }

    fn write_record(&self, exists: bool, name: &SequenceName, record: &str) -> Mutation {
        let (columns, name) = (["name", "record"], name.as_str());
        if exists {
            mutation::update(&self.0, &columns, &[&name, &record])
        } else {
            mutation::insert(&self.0, &columns, &[&name, &record])
        }
    }

    /// The name and the record of a row.
    fn decode_record(&self, row: &Row) -> (String, Result<String>) {
        let text = |column| row.column::<String>(column);
        let name = text(0).unwrap_or_default();
        let record = text(1).map_err(|error| {
            let message =
                format!("the row {name:?} of `{}` has no record: {error}; nothing was changed", self.0);
            Error::new(ErrorKind::StoreViolation, message)
        });
        (name, record)
    }
}

/// Writes a record if what was seen is still there.
#[derive(Clone)]
struct Swap {
    witness: Table,
    name: SequenceName,
    seen: Option<String>,
    wanted: String,
}

impl Step<bool> for Swap {
    fn run<'a>(&'a self, tx: &'a mut ReadWriteTransaction) -> StoreFuture<'a, Result<(bool, Mutations)>> {
        Box::pin(async move {
            let select = format!("@{{LOCK_SCANNED_RANGES=exclusive}} SELECT {COLUMNS}");
            let (_, found) = read(tx, self.witness.named(&select, &self.name)).await?;
            let kept = found.first().map(|row| self.witness.decode_record(row).1).transpose()?;
            if kept != self.seen {
                return Ok((false, Vec::new()));
            }
            Ok((true, vec![self.witness.write_record(kept.is_some(), &self.name, &self.wanted)]))
        })
    }
}

impl Database {
    pub(super) async fn record(&self, name: &SequenceName) -> Result<Option<String>> {
        let witness = self.table().witness()?;
        let found = self.records_of(witness.named(&format!("SELECT {COLUMNS}"), name)).await?;
        found.first().map(|row| witness.decode_record(row).1).transpose()
    }

    /// Reads outside any transaction; nothing where there is no table yet.
    async fn records_of(&self, statement: Statement) -> Result<Vec<Row>> {
        let mut single = self.client().single().await.map_err(client_failed)?;
        match read(&mut single, statement).await {
            Err(error) if is(&error, is_missing_table) => Ok(Vec::new()),
            outcome => outcome.map(|(_, found)| found),
        }
    }

    pub(super) async fn swap_record(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        let witness = self.table().witness()?;
        let (name, seen, wanted) = (name.clone(), seen.map(str::to_owned), wanted.to_owned());
        let swap = Swap { witness: witness.clone(), name, seen, wanted };
        match self.run(swap.clone()).await {
            Err(error) if is(&error, is_missing_table) && swap.seen.is_some() => Ok(false),
            Err(error) if is(&error, is_missing_table) => {
                if !self.create_also(witness.records_ddl()).await? {
                    return Err(never_made(&witness));
                }
                self.run(swap).await
            }
            outcome => outcome,
        }
    }

    pub(super) async fn list_records(&self, page: &Page) -> Result<Records> {
        let witness = self.table().witness()?;
        let found = self.records_of(witness.select_page_of(COLUMNS, page)).await?;
        let (full, mut records) = (found.len() >= page.limit.max(1), Records::default());
        for row in &found {
            let (name, record) = witness.decode_record(row);
            records.next = full.then(|| Cursor::new(name.as_str()));
            records.add(&name, record);
        }
        Ok(records)
    }
}

fn never_made(witness: &Table) -> Error {
    let message = format!(
        "there is no table `{}` to keep records in, and the store was opened so that it creates none; if it was there before, \
         restore it: made anew, it has forgotten what it witnessed; if this is new, open the store with mode=rwc, or create it: {}",
        witness.0,
        witness.records_ddl()
    );
    Error::new(ErrorKind::NotFound, message)
}
