//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill::Result;
use idmill_sql::postgres::{Calls, Table};
use idmill_sql::{Answer, Fault, Library, Statement};
use tokio_postgres::Transaction;

use super::convert::{fault_of, parameters, row_of};

idmill_sql::draws_in! {
    /// ```no_run
    /// # use idmill_postgres::driver::Client;
    /// # async fn demo(client: &mut Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use idmill_postgres::next_in;
    ///
    /// let tx = client.transaction().await?;
    /// let number: i64 = next_in(&tx, "invoices").await?;
    /// tx.execute("INSERT INTO invoices VALUES ($1, 4200)", &[&number]).await?;
    /// tx.commit().await?; // the number and the invoice, or neither
    /// # Ok(()) }
    /// ```
    async &Transaction<'_>
}

/// Returns the statement that draws from a sequence inside a transaction of any other driver. The statement
/// names the schema, since the `search_path` of a transaction could lead to a clone of the table. Parameters:
/// the name, as `text`, and the number of ids, at least 1, as `bigint`. It returns one row with the first id,
/// as `bigint`. It returns no row if the sequence does not exist, has too few ids left, or was last written
/// on another cluster or timeline. The rules of [`InTransaction`] apply, except that nothing is created.
///
/// ```
/// let sql = idmill_postgres::next_in_sql("public", "idmill_sequences")?;
/// // With sqlx:
/// // let draw = sqlx::query_scalar(AssertSqlSafe(sql)).bind("invoices").bind(1_i64);
/// // let first: Option<i64> = draw.fetch_optional(&mut *tx).await?;
/// # assert!(sql.starts_with("UPDATE "));
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
pub fn next_in_sql(schema: &str, table: &str) -> Result<String> {
    Ok(Table::new(Some(schema), table)?.published())
}

/// Draws ids of a sequence inside the caller's own transactions.
///
/// The ids commit together with the rows that they number. So there are no gaps, and ids are in commit order:
/// if a transaction rolls back, the next one gets its ids. The cost is that transactions that draw from one
/// sequence run one after another, each from its first draw to its commit or rollback. Draw late and commit
/// soon. If a transaction draws from several sequences, use the same order everywhere. A commit is as durable
/// as the caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction. The table must exist: opening a
/// [`PostgresStore`](super::PostgresStore) once creates it. A store may draw from the same sequence and never
/// gets the same id, but it leaves gaps.
///
/// Use READ COMMITTED, PostgreSQL's default isolation level. At a stricter level, a transaction that waited
/// for another fails to serialize ([`Unavailable`](idmill::ErrorKind::Unavailable)) and has to be restarted.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Calls, TokioPostgres>;

/// Marks transactions of `tokio-postgres`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TokioPostgres {}

impl Library for TokioPostgres {
    type Transaction<'a> = &'a Transaction<'a>;

    async fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        let parameters = parameters(&statement.values, &"");
        let rows = transaction.query_typed(&statement.sql, &parameters).await.map_err(fault_of)?;
        Ok(Answer::rows(rows.iter().map(row_of).collect()))
    }
}
