//! Records, in a separate table that is created before the first record is written.

use gcloud_googleapis::spanner::v1::Mutation;
use gcloud_spanner::mutation;
use gcloud_spanner::row::Row;
use gcloud_spanner::statement::Statement;
use idmill::store::{Page, Records};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::{Fill, never_made, witness_beside};

use super::SpannerStore;
use super::classify::{client_failed, is_missing_table};
use super::connection::{is, read};
use super::schema::{Found, LONGEST_NAME, Table};

const COLUMNS: &str = "name, record";

impl Table {
    /// Returns the records table of this sequences table.
    fn witness(&self) -> Result<Self> {
        witness_beside(&self.0, LONGEST_NAME).map(|name| Self(name.into()))
    }

    /// Returns the statement that creates the records table.
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

    /// Returns the name and the record of a row.
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

impl SpannerStore {
    pub(super) async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let witness = self.database.table.witness()?;
        let found = self.records_of(witness.named(&format!("SELECT {COLUMNS}"), name)).await?;
        found.first().map(|row| witness.decode_record(row).1).transpose()
    }

    /// Reads rows outside any transaction. Returns no rows if the table does not exist yet.
    async fn records_of(&self, statement: Statement) -> Result<Vec<Row>> {
        let mut single = self.client().single().await.map_err(client_failed)?;
        match read(&mut single, statement).await {
            Err(error) if is(&error, is_missing_table) => Ok(Vec::new()),
            outcome => outcome.map(|(_, found)| found),
        }
    }

    /// Writes a record if the stored record still equals `seen`.
    pub(super) async fn try_swap_record(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        self.access.must_write()?;
        let witness = self.database.table.witness()?;
        let (ddl, is_first) = (witness.records_ddl(), seen.is_none());
        let select = format!("@{{LOCK_SCANNED_RANGES=exclusive}} SELECT {COLUMNS}");
        let select = witness.named(&select, name);
        let missing = never_made(&format!("`{}`", witness.0), &ddl);
        let (name, seen, wanted) = (name.clone(), seen.map(str::to_owned), wanted.to_owned());
        let swap = move |(_, found): Found| {
            let kept = found.first().map(|row| witness.decode_record(row).1).transpose()?;
            if kept != seen {
                return Ok((false, Vec::new()));
            }
            Ok((true, vec![witness.write_record(kept.is_some(), &name, &wanted)]))
        };
        match self.database.run(select.clone(), swap.clone()).await {
            Err(error) if is(&error, is_missing_table) && !is_first => Ok(false),
            Err(error) if is(&error, is_missing_table) => {
                if !self.database.create_also(ddl).await? {
                    return Err(missing);
                }
                self.database.run(select, swap).await
            }
            outcome => outcome,
        }
    }

    pub(super) async fn try_list_records(&self, page: &Page) -> Result<Records> {
        let witness = self.database.table.witness()?;
        let found = self.records_of(witness.select_page(COLUMNS, page)).await?;
        Ok(Records::by_name(page, found.iter().map(|row| witness.decode_record(row)).collect()))
    }
}
