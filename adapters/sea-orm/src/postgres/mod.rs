//! PostgreSQL: a store beside a [`DatabaseConnection`](sea_orm::DatabaseConnection), and ids inside its
//! transactions.
//!
//! The table is that of `idmill-postgres`: processes with either crate share its sequences. The store is that
//! of `idmill-sqlx08`, beside SeaORM's pool of sqlx.
//!
//! # How a draw in a transaction is sent
//!
//! As two statements. The first asks the server whether it is in a transaction, by a savepoint that is
//! released at once. SeaORM does not say so itself, and a
//! [`DatabaseTransaction`](sea_orm::DatabaseTransaction) can outlive its transaction: when a nested `begin`
//! fails or is dropped halfway, sqlx rolls back the one around it, and what is sent by that afterwards
//! commits by itself. The second takes the ids. It is prepared, once for each connection, as all of SeaORM's
//! statements are.
//!
//! # Cancellation
//!
//! A future of [`next_in`] that is dropped may have been carried out at the server, and leaves an answer to
//! be read. sqlx reads and drops it before the next statement. Roll the transaction back then: one that is
//! committed may have a gap.
//!
//! # A transaction that is dropped
//!
//! It is rolled back as its connection goes back to the pool, and its ids go to the next one. SeaORM has no
//! transaction on a connection that somebody else holds. One that is dropped inside another is rolled back
//! with the next statement of that, or with its end.

mod convert;
mod store;
mod transaction;

pub use self::store::PostgresStore;
pub use self::transaction::{InTransaction, next_in, reserve_in};
pub use idmill_sqlx::postgres::{DEFAULT_TABLE, Keeps, PostgresOptions, ddl, witness_ddl};
