//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill_sql::postgres::Calls;

/// A sequence that is drawn from inside the caller's own transactions: pass the connection that
/// `conn.transaction(…)` provides.
///
/// The ids commit together with the rows that they number. So there are no gaps, and ids are in commit order:
/// if a transaction rolls back, the next one gets its ids. The cost: transactions that draw from one sequence
/// run one after another, each from its first draw to its commit or rollback. Draw late and commit soon. If a
/// transaction draws from several sequences, use the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction. The table must exist: opening a store once
/// creates it, or use [`ddl`](super::ddl) in a migration. A store may draw from the same sequence and never
/// gets the same id, but it leaves gaps.
///
/// In diesel, a nested transaction is a savepoint. If it is rolled back, the sequence gets the ids drawn in
/// it back. The row stays locked only if the outer transaction drew from the sequence before the savepoint.
///
/// Use READ COMMITTED, PostgreSQL's default isolation level. At a stricter level, a transaction that waited
/// for another fails to serialize ([`Unavailable`](idmill::ErrorKind::Unavailable)) and has to be restarted.
///
/// See the README of this crate for dropped futures and transactions.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Calls, Diesel>;

/// Marks transactions of diesel with PostgreSQL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Diesel {}
