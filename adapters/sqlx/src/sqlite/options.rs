//! Where the table is, and how long others are waited for.

use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_sql::sqlite::{DEFAULT_TABLE, Table};

const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// SQLite counts milliseconds in 31 bits.
const MAX_BUSY_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// Where sequences are kept in the pool's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    table: String,
    pub(super) mode: Mode,
    pub(super) busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        let table = DEFAULT_TABLE.to_owned();
        Self { table, mode: Mode::default(), busy_timeout: DEFAULT_BUSY_TIMEOUT }
    }
}

impl SqliteOptions {
    /// The table `idmill_sequences`, created where it is missing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The table to keep sequences in: letters, digits and `_`. Default `idmill_sequences`.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// What opening may do. Default [`Mode::Create`]: the table is created, and the file where the pool's
    /// options say so too (`create_if_missing`).
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// How long the store waits while others hold the database, up to 24 days. Default 5 s.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    pub(super) fn check(&self) -> Result<Table> {
        if self.busy_timeout > MAX_BUSY_TIMEOUT {
            let message =
                format!("busy_timeout {:?} must be at most {MAX_BUSY_TIMEOUT:?}", self.busy_timeout);
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Table::new(&self.table)
    }
}
