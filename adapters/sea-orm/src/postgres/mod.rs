//! PostgreSQL: a store that uses a [`DatabaseConnection`](sea_orm::DatabaseConnection), and ids
//! inside its transactions.
//!
//! The table is the same as in `idmill-postgres`: processes with either crate share its sequences. The store
//! wraps the one of `idmill-sqlx08` (for SeaORM 2: `idmill-sqlx`), over SeaORM's sqlx pool.
//!
//! # Protocol of a draw in a transaction
//!
//! A draw from an existing sequence sends two statements. The first checks that the server is in a
//! transaction, with a savepoint that is released immediately. SeaORM does not report whether a transaction
//! is open, and a [`DatabaseTransaction`](sea_orm::DatabaseTransaction) can outlive its transaction: when a
//! nested `begin` fails or is dropped halfway, sqlx rolls back the outer transaction, and later statements of
//! the outer transaction commit one by one. The second statement takes the ids. It is prepared once per
//! connection, like all statements of SeaORM.
//!
//! # Cancellation
//!
//! If a future of [`next_in`] is dropped, the server may have executed its statement, and an unread answer is
//! left. sqlx discards the answer before the next statement. Then roll the transaction back: a commit may
//! leave a gap.
//!
//! # Dropped transactions
//!
//! A dropped transaction is rolled back when its connection returns to the pool, and the next transaction
//! gets its ids. A SeaORM transaction always owns its connection, so none stays open on a connection that you
//! hold. A nested transaction that is dropped is rolled back with the next statement of the outer
//! transaction, or at its end.

mod convert;
mod store;
mod transaction;

pub use self::convert::into_db_err;
pub use self::store::PostgresStore;
pub use self::transaction::{InTransaction, next_in, reserve_in};
pub use idmill_sqlx::postgres::{DEFAULT_TABLE, Keeps, PostgresOptions, ddl, witness_ddl};
