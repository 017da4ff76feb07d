//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill_sql::postgres::Calls;
use idmill_sql::{Answer, Fault, Library, Statement};
use sqlx::PgConnection;

use super::convert::{fault_of, row_of};
use super::text::inlined;
use crate::must_be_inside;
use crate::version::postgres::rows;

idmill_sql::draws_in! {
    /// ```no_run
    /// # async fn demo(pool: &idmill_sqlx::driver::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use idmill_sqlx::driver as sqlx;
    /// use idmill_sqlx::postgres::next_in;
    ///
    /// let mut tx = pool.begin().await?;
    /// let number: i64 = next_in(&mut tx, "invoices").await?;
    /// sqlx::query("INSERT INTO invoices VALUES ($1, 4200)").bind(number).execute(&mut *tx).await?;
    /// tx.commit().await?; // the number and the invoice, or neither
    /// # Ok(()) }
    /// ```
    async &mut PgConnection
}

/// A sequence that is drawn from inside the caller's own transactions: pass `&mut *tx`.
///
/// The ids commit together with the rows that they number. So there are no gaps, and ids are in commit order:
/// if a transaction rolls back, the next one gets its ids. The cost: transactions that draw from one sequence
/// run one after another, each from its first draw to its commit or rollback. Draw late and commit soon. If a
/// transaction draws from several sequences, use the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction. The table must exist: opening a
/// [`PostgresStore`](super::PostgresStore) once creates it, or use [`ddl`](super::ddl) in a migration. A
/// store may draw from the same sequence and never gets the same id, but it leaves gaps.
///
/// In sqlx, a nested transaction is a savepoint. If it is rolled back, the sequence gets the ids drawn in it
/// back. The row stays locked only if the outer transaction drew from the sequence before the savepoint.
///
/// Use READ COMMITTED, PostgreSQL's default isolation level. At a stricter level, a transaction that waited
/// for another fails to serialize ([`Unavailable`](idmill::ErrorKind::Unavailable)) and has to be restarted.
///
/// See the [module](super) for dropped futures and transactions.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Calls, Sqlx>;

/// Marks transactions of `sqlx` with PostgreSQL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Sqlx {}

impl Library for Sqlx {
    type Transaction<'a> = &'a mut PgConnection;

    async fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        must_be_inside(&**transaction)?;
        let sql = inlined(&statement, "")?;
        let rows = rows(transaction, &sql).await.map_err(fault_of)?;
        Ok(Answer::rows(rows.iter().map(row_of).collect()))
    }
}
