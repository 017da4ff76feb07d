//! Where the table is, and how the store is to use the pool.

use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_kit::history::Failover;
use idmill_sql::postgres::{DEFAULT_TABLE, Keeps, Table};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Where sequences are kept in the pool's database, and how the store uses the pool.
///
/// ```
/// use std::time::Duration;
/// use idmill_sqlx::Mode;
/// use idmill_sqlx::postgres::PostgresOptions;
///
/// let options = PostgresOptions::new()
///     .table("numbers")
///     .schema("billing")
///     .mode(Mode::ReadWrite)
///     .timeout(Duration::from_secs(5));
/// # drop(options);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    table: String,
    schema: Option<String>,
    pub(super) mode: Mode,
    pub(super) keeps: Keeps,
    pub(super) failover: Option<Failover>,
    pub(super) timeout: Duration,
    pub(super) shares_pool: bool,
    pub(super) closes_with_pool: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            table: DEFAULT_TABLE.to_owned(),
            schema: None,
            mode: Mode::default(),
            keeps: Keeps::default(),
            failover: None,
            timeout: DEFAULT_TIMEOUT,
            shares_pool: false,
            closes_with_pool: false,
        }
    }
}

impl PostgresOptions {
    /// The table `idmill_sequences`, created where it is missing, and connections of the store's own.
    pub fn new() -> Self {
        Self::default()
    }

    /// The table to keep sequences in: up to 63 ASCII letters, digits and `_`. Default `idmill_sequences`.
    /// Tables are namespaces: a name in one has nothing to do with the same name in another.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// The schema of the table. By default the table is found along the connection's `search_path`, and
    /// created in its first schema where there is none.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// What opening may do. Default [`Mode::Create`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What makes sure that a crash of the server takes nothing back. Default [`Keeps::Disk`]: `fsync` and
    /// `full_page_writes` have to be on.
    #[must_use]
    pub fn keeps(mut self, keeps: Keeps) -> Self {
        self.keeps = keeps;
        self
    }

    /// What happens to a sequence that was last written on another cluster or timeline, whose last writes may
    /// be missing here. By default it is refused, if the server tells which it is.
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = Some(failover);
        self
    }

    /// How long one statement may take before its outcome is unknown, 1 ms to a day; default 10 s. A
    /// statement waits for locks, and a connection is waited for, half of that.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Uses the pool's own connections, up to four at a time, and four more while locks are waited for. By
    /// default the store opens its own.
    ///
    /// **Mind the deadlock.** A request that holds a connection, in a transaction say, and waits for an id of
    /// an allocator may have to wait for a refill; and the refill waits for a connection. Where all
    /// connections are held in this way, nobody gets on. The refill then fails after half of
    /// [`timeout`](Self::timeout), with an error that says so. So share a pool only where ids are drawn
    /// before a connection is taken, or where the database allows no more connections.
    ///
    /// Each write costs a second round trip, by which the store makes sure that nobody left a transaction
    /// open on the connection.
    #[must_use]
    pub fn share_pool(mut self) -> Self {
        self.shares_pool = true;
        self
    }

    /// Ends the store's own connections when the pool is closed. By default they stay, so that ids in memory
    /// can still be given back. In tests a task may keep the store, whose open connections keep
    /// `#[sqlx::test]` from dropping the test's database. All calls fail with
    /// [`Closed`](ErrorKind::Closed) after that.
    #[must_use]
    pub fn close_with_pool(mut self) -> Self {
        self.closes_with_pool = true;
        self
    }

    /// Everything that can be known to be wrong without asking the network.
    pub(super) fn check(&self) -> Result<Table> {
        if self.timeout < Duration::from_millis(1) || self.timeout > MAX_TIMEOUT {
            let message = format!("timeout {:?} must be at least 1ms and at most a day", self.timeout);
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Table::new(self.schema.as_deref(), &self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_before_anybody_is_asked() {
        let good = PostgresOptions::new().table("numbers").schema("billing");
        assert_eq!(good.check().unwrap().sql(), "\"billing\".\"numbers\"");
        for bad in [
            PostgresOptions::new().table(""),
            PostgresOptions::new().table("a\"b"),
            PostgresOptions::new().schema("a.b"),
            PostgresOptions::new().timeout(Duration::ZERO),
            PostgresOptions::new().timeout(Duration::from_micros(999)),
            PostgresOptions::new().timeout(MAX_TIMEOUT + Duration::from_secs(1)),
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}
