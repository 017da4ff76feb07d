//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use idmill::{Id, IdRange, Result};
use idmill_sql::postgres::{Calls, Table};
use idmill_sql::{Answer, Executor, Fault, Library, Statement};
use tokio_postgres::Transaction;

use super::convert::{fault_of, parameters, row_of};

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// ```no_run
/// # async fn demo(client: &mut idmill_postgres::driver::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use idmill_postgres::next_in;
///
/// let tx = client.transaction().await?;
/// let number: i64 = next_in(&tx, "invoices").await?;
/// tx.execute("INSERT INTO invoices VALUES ($1, 4200)", &[&number]).await?;
/// tx.commit().await?; // the number and the invoice, or neither
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &Transaction<'_>, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(transaction: &Transaction<'_>, name: &str, count: u64) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// The statement with which any other driver draws from a sequence inside its own transaction: parameters
/// the name, as `text`, and how many ids, as `bigint`; one row with the first of them, as `bigint`, or
/// none if the sequence does not exist, has fewer left, or was last written on another cluster or timeline.
/// What [`InTransaction`] says holds for it, except that it creates nothing.
///
/// ```
/// let sql = idmill_postgres::next_in_sql("idmill_sequences")?;
/// // With sqlx:
/// // let draw = sqlx::query_scalar(AssertSqlSafe(sql)).bind("invoices").bind(1_i64);
/// // let first: Option<i64> = draw.fetch_optional(&mut *tx).await?;
/// # assert!(sql.starts_with("UPDATE "));
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name of a table that cannot be.
pub fn next_in_sql(table: &str) -> Result<String> {
    Ok(Table::new(None, table)?.published())
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction; the table must be there, as any
/// [`PostgresStore`](super::PostgresStore) that was opened once has created it. Both may draw from one
/// sequence without ever sharing an id, but then it has the gaps of the latter.
///
/// READ COMMITTED, PostgreSQL's default, is the isolation to use. In a stricter one a transaction that
/// waited for another hears that it could not be serialised
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to begin again.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Calls, TokioPostgres>;

/// The library `tokio-postgres`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TokioPostgres {}

impl Library for TokioPostgres {
    type Transaction<'a> = &'a Transaction<'a>;
    type Within<'a> = Within<'a>;

    fn within(transaction: Self::Transaction<'_>) -> Self::Within<'_> {
        Within(transaction)
    }
}

/// Runs statements in a transaction of the caller's.
#[allow(missing_debug_implementations)] // the driver's transaction has none
pub struct Within<'a>(&'a Transaction<'a>);

impl Executor for Within<'_> {
    const IN_TRANSACTION: bool = true;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        let lock_timeout = String::new();
        let parameters = parameters(&statement.values, &lock_timeout);
        let rows = self.0.query_typed(&statement.sql, &parameters).await.map_err(fault_of)?;
        Ok(Answer::rows(rows.iter().map(row_of).collect()))
    }
}
