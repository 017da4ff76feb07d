//! SQLite: a store beside a [`SqlitePool`](sqlx::SqlitePool), and ids inside the transactions of one.
//!
//! The table is that of `idmill-sqlite`: processes with either crate share its sequences.
//!
//! # One writes at a time
//!
//! Whoever writes holds the whole database until it commits. So **a transaction that has written must not
//! wait for an id of an allocator**: the refill waits for that transaction, gives up after the busy timeout,
//! and says that another connection holds the database. Draw before the transaction writes; or in it, with
//! [`next_in`].
//!
//! # Cancellation
//!
//! A call of the store that is dropped closes its connection, which rolls back what has not been committed;
//! a commit that was under way may be carried out, and is a gap then. The next call opens another connection.
//!
//! A future of [`next_in`] that is dropped may have been carried out: roll the transaction back.

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

/// The statement that creates the table, for migrations: what [`SqliteStore`] would run.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
pub fn ddl(table: &str) -> Result<String> {
    Ok(Table::new(table)?.ddl())
}

/// The statement that creates the table of the records, for migrations: what [`SqliteStore`] would run before
/// it writes the first of them.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be, or is too long for a table
/// beside it.
pub fn witness_ddl(table: &str) -> Result<String> {
    Table::new(table)?.witness_ddl()
}
