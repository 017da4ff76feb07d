//! PostgreSQL: a store that uses a [`PgPool`](sqlx::PgPool), and ids inside the pool's
//! transactions.
//!
//! The table is the same as in `idmill-postgres`: processes with either crate share its sequences.
//!
//! # Protocol
//!
//! A statement is sent as one text with its values as literals, over PostgreSQL's simple query protocol. So
//! it is one round trip, nothing is prepared on any connection, and it works through a pooler in transaction
//! mode (PgBouncer). A value is a literal of printable ASCII without quotes and backslashes; any other text
//! is sent as hexadecimal digits.
//!
//! # Cancellation
//!
//! If a call of the store is dropped, its statement may already be sent. The server then executes it, and the
//! reserved range becomes a gap. The call's connection is closed. If the connection is from your pool, the
//! pool opens another.
//!
//! A dropped future of [`next_in`] leaves an unread answer on your connection. sqlx discards the answer
//! before the next statement. Then roll the transaction back: a commit may leave a gap.
//!
//! # Dropped transactions
//!
//! sqlx sends no `ROLLBACK` when a `Transaction` is dropped, but queues one for the next use of the
//! connection. A transaction of [`PgPool::begin`](sqlx::Pool::begin) returns its connection to the
//! pool, which sends the rollback immediately. If the transaction was begun on a connection that is
//! still held, it stays open at the server, and **all other draws from its sequences wait** until
//! that connection is used again, returned or closed. So begin transactions on the pool, or call
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
