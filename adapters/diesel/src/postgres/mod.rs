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
pub use idmill_sql::postgres::{DEFAULT_TABLE, ddl, witness_ddl};
