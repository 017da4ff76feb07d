//! PostgreSQL: ids inside the transactions of a connection of diesel's, and a store beside your pool.
//!
//! The table is that of `idmill-postgres`: processes with either crate share its sequences.
//!
//! # How a statement is sent
//!
//! As diesel sends any query: prepared once on each connection, in diesel's own cache, and executed with its
//! values apart. So the first draw on a connection takes a round trip more than any other. Where you turn
//! that cache off for a pooler (`set_prepared_statement_cache_size`), it is off for draws too.

#[cfg(feature = "sync")]
pub mod blocking;
#[cfg(any(feature = "async", feature = "sync"))]
mod convert;
#[cfg(feature = "async")]
mod drawing;
#[cfg(any(feature = "async", feature = "sync"))]
mod query;
#[cfg(any(feature = "async", feature = "sync"))]
mod transaction;

#[cfg(feature = "async")]
pub use self::drawing::{next_in, reserve_in};
#[cfg(any(feature = "async", feature = "sync"))]
pub use self::transaction::InTransaction;
#[cfg(feature = "async")]
pub use idmill_postgres::{Failover, Keeps, PostgresOptions, PostgresStore};
pub use idmill_sql::postgres::DEFAULT_TABLE;

use idmill::Result;
use idmill_sql::postgres::Table;

/// The statement that creates the table, for migrations: what a store would run.
///
/// ```
/// let ddl = idmill_diesel::postgres::ddl(None, "idmill_sequences")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS \"idmill_sequences\""));
/// # Ok::<(), idmill_diesel::idmill::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
pub fn ddl(schema: Option<&str>, table: &str) -> Result<String> {
    Ok(Table::new(schema, table)?.ddl())
}

/// The statement that creates the table of the records, for migrations: what a store would run before it
/// writes the first of them.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be, or is too long for a table
/// beside it.
pub fn witness_ddl(schema: Option<&str>, table: &str) -> Result<String> {
    Table::new(schema, table)?.witness_ddl()
}
