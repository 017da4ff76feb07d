//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use idmill_sql::postgres::Calls;

/// A sequence that is drawn from inside the caller's own transactions: pass the connection that
/// `conn.transaction(…)` passes.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction; the table must be there, as any store that
/// was opened once has created it, or [`ddl`](super::ddl) in a migration. Both may draw from one sequence
/// without ever sharing an id, but then it has the gaps of the latter.
///
/// diesel makes a savepoint of a transaction in a transaction. If it is rolled back, so are the ids that were
/// drawn in it. The lock stays until the outer transaction ends.
///
/// READ COMMITTED, PostgreSQL's default, is the isolation to use. In a stricter one a transaction that
/// waited for another hears that it could not be serialised
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to begin again.
///
/// See the [crate](crate) for what is dropped halfway.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Calls, Diesel>;

/// The library diesel, with PostgreSQL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Diesel {}
