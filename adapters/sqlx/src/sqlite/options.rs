//! The location of the table, and the busy timeout.

use std::time::Duration;

use idmill::Result;
use idmill_kit::Mode;
use idmill_kit::options::{Options as _, duration, words};
use idmill_sql::sqlite::{DEFAULT_TABLE, NAME, Table};

idmill_kit::options! {
    /// The location of the sequences in the pool's database.
    #[derive(Debug)]
    pub struct SqliteOptions {}

    /// The table of the sequences: letters, digits and `_`. Default `idmill_sequences`.
    pub table: String = DEFAULT_TABLE in NAME;
    /// How the table is opened. Default [`Mode::Create`]: the table is created; the file too, if the pool's
    /// options have `create_if_missing`.
    pub mode: Mode = "rwc" in words::<Mode>();
    /// How long a write waits for other writers, up to 24 days. Default 5 s.
    pub busy_timeout: Duration = "5s" in duration("0s", "2147483647ms");
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
