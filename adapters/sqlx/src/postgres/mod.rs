//! PostgreSQL: a store beside a [`PgPool`](sqlx::PgPool), and ids inside the transactions of one.
//!
//! The table is that of `idmill-postgres`: processes with either crate share its sequences.
//!
//! # How a statement is sent
//!
//! As one text, with its values in it as literals, by PostgreSQL's simple protocol. So it is one round trip,
//! nothing is prepared on any connection, and a pooler in transaction mode (PgBouncer) serves as well as a
//! direct connection does. A value is a literal of printable ASCII without quotes and backslashes; any other
//! text travels as hexadecimal digits.
//!
//! # Cancellation
//!
//! A call of the store that is dropped may have been sent, and is then carried out; the range it reserved is
//! a gap. Its connection is closed, also where it is one of your pool's: that makes another.
//!
//! A future of [`next_in`] that is dropped leaves your connection with an answer to be read. sqlx reads and
//! drops it before the next statement. Roll the transaction back then: one that is committed may have a gap.
//!
//! # A transaction that is dropped
//!
//! sqlx sends no `ROLLBACK` when a `Transaction` is dropped: it queues one, for the next use of the
//! connection. A transaction of [`PgPool::begin`](sqlx::Pool::begin) gives its connection back to the pool at
//! the same time, which uses it at once. But a transaction that was begun on a connection which somebody
//! still holds goes on at the server, and **everybody who draws from its sequences waits**, until that
//! connection is used again, given back or closed. So begin transactions on the pool, or call
//! [`rollback`](sqlx::Transaction::rollback).

mod convert;
mod notices;
mod options;
mod sessions;
mod store;
mod text;
mod transaction;

pub use self::convert::fault_of;
pub use self::options::PostgresOptions;
pub use self::store::PostgresStore;
pub use self::transaction::{InTransaction, next_in, reserve_in};
pub use idmill_sql::postgres::{DEFAULT_TABLE, Keeps, ddl, witness_ddl};
