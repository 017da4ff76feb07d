//! The location of the table, and the busy timeout.

use std::time::Duration;

use idmill::Result;
use idmill_kit::Mode;
use idmill_kit::options::Options as _;
use idmill_sql::sqlite::Table;

idmill_sql::options! {
    /// The location of the sequences in the pool's database.
    #[derive(Debug)]
    pub struct SqliteOptions {}

    sql table in sqlite;
    sql opening in sqlite;
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl SqliteOptions {
    /// Creates options for the table `idmill_sequences`, which is created if it is missing.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn check(&self) -> Result<Table> {
        self.check_values()?;
        Table::new(&self.table)
    }
}
