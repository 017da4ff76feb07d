//! PostgreSQL: ids inside the transactions of a diesel connection, and a store with its own connections, next
//! to your pool.
//!
//! The table is the same as in `idmill-postgres`: processes with either crate share its sequences.
//!
//! # Protocol
//!
//! Statements are sent like any diesel query: prepared once on each connection, in diesel's cache,
//! and executed with separate values. So the first draw on a connection takes one more round trip.
//! If you turn that cache off for a pooler (`set_prepared_statement_cache_size`), it is off for
//! draws too.

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
pub use idmill_kit::history::Failover;
#[cfg(feature = "store")]
pub use idmill_postgres::{Keeps, PostgresOptions, PostgresStore};
pub use idmill_sql::postgres::{DEFAULT_TABLE, ddl, witness_ddl};
