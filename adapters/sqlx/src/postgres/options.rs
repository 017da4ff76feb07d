//! The location of the table, and how the store uses the pool.

use std::time::Duration;

use idmill::Result;
use idmill_kit::Mode;
use idmill_kit::history::Failover;
use idmill_kit::options::Options as _;
use idmill_sql::postgres::{Keeps, NAME, Table};

idmill_sql::options! {
    /// The location of the sequences in the pool's database, and how the store uses the pool.
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
    #[derive(Debug)]
    pub struct PostgresOptions {
        pub(super) shares_pool: bool,
        pub(super) closes_with_pool: bool,
    }

    sql table in postgres;
    /// The schema of the table. Default: the table is looked up on the connection's `search_path`, and
    /// created in its first schema.
    pub schema: Option<String> = "" in NAME;
    sql opening in postgres;
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::with_defaults(false, false)
    }
}

impl PostgresOptions {
    /// Creates options for the table `idmill_sequences`, which is created if it is missing, and
    /// separate connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses the pool's connections: up to four at a time, plus four that wait for locks. By default
    /// the store opens its own.
    ///
    /// **This can deadlock.** A request may draw an id while it holds a connection, for example in a
    /// transaction. If the draw waits for a refill, the refill waits for a connection. If all connections are
    /// held in this way, no request can continue. The refill then fails after half of
    /// [`timeout`](Self::timeout) or the pool's `acquire_timeout`, whichever is shorter; the error names
    /// remedies. So share a pool only if ids are drawn before a connection is taken, or if the database
    /// allows no more connections.
    ///
    /// Each write costs a second round trip, in which the store checks that no transaction was left
    /// open on the connection.
    #[must_use]
    pub fn share_pool(mut self) -> Self {
        self.shares_pool = true;
        self
    }

    /// Closes the store's own connections when the pool is closed. By default they stay open, so
    /// that ids in memory can still be returned. In tests, a task may keep the store, and its open
    /// connections prevent `#[sqlx::test]` from dropping the test's database. After the close, all
    /// calls fail with [`Closed`](idmill::ErrorKind::Closed).
    #[must_use]
    pub fn close_with_pool(mut self) -> Self {
        self.closes_with_pool = true;
        self
    }

    /// Checks everything that needs no network access.
    pub(super) fn check(&self) -> Result<Table> {
        self.check_values()?;
        Table::new(self.schema.as_deref(), &self.table)
    }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;

    use super::*;

    #[test]
    fn invalid_options_are_rejected_before_connecting() {
        let good = PostgresOptions::new().table("numbers").schema("billing");
        assert_eq!(good.check().unwrap().sql(), "\"billing\".\"numbers\"");
        for bad in [
            PostgresOptions::new().table(""),
            PostgresOptions::new().table("a\"b"),
            PostgresOptions::new().schema("a.b"),
            PostgresOptions::new().timeout(Duration::ZERO),
            PostgresOptions::new().timeout(Duration::from_micros(999)),
            PostgresOptions::new().timeout(Duration::from_secs(24 * 60 * 60) + Duration::from_secs(1)),
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}
