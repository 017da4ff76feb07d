//! SQLite: a store that uses a [`SqlitePool`](sqlx::SqlitePool), and ids inside the pool's
//! transactions.
//!
//! The table is the same as in `idmill-sqlite`: processes with either crate share its sequences.
//!
//! # One writer at a time
//!
//! A writer locks the whole database until it commits. So **a transaction that has written must not
//! wait for an id of an allocator**: the refill waits for that transaction, and fails after the
//! busy timeout because another connection holds the database. Draw before the transaction writes,
//! or inside it with [`next_in`].
//!
//! # Cancellation
//!
//! Dropping a call of the store that has begun closes its connection, which rolls back uncommitted writes. A
//! commit that had begun may complete, and leaves a gap. The next call opens another connection.
//!
//! If a future of [`next_in`] is dropped, its statements may have run: roll the transaction back.

mod executor;
mod options;
mod store;
mod transaction;

pub use self::options::SqliteOptions;
pub use self::store::SqliteStore;
pub use self::transaction::{InTransaction, next_in, reserve_in};
pub use idmill_sql::sqlite::DEFAULT_TABLE;

use idmill::Result;
use idmill_sql::sqlite::Table;

/// Returns the statement that creates the table, for migrations. [`SqliteStore`] with
/// [`Mode::Create`](crate::Mode::Create) runs it if the table is missing.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
pub fn ddl(table: &str) -> Result<String> {
    Ok(Table::new(table)?.ddl())
}

/// Returns the statement that creates the table of the records, for migrations. [`SqliteStore`] with
/// [`Mode::Create`](crate::Mode::Create) runs it before it writes the first record.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name, or one that is too long
/// for the table of the records.
pub fn witness_ddl(table: &str) -> Result<String> {
    Table::new(table)?.witness_ddl()
}
