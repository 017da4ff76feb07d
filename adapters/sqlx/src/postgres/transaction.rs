//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use idmill::{Id, IdRange, Result};
use idmill_sql::postgres::Calls;
use idmill_sql::{Answer, Executor, Fault, Library, Statement};
use sqlx::{Connection, PgConnection};

use super::convert::{fault_of, row_of};
use super::text::inlined;
use crate::version::postgres::rows;

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`] with everything at its
/// default.
///
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
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut PgConnection, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`] with everything at
/// its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(transaction: &mut PgConnection, name: &str, count: u64) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// A sequence that is drawn from inside the caller's own transactions: pass `&mut *tx`.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction; the table must be there, as any
/// [`PostgresStore`](super::PostgresStore) that was opened once has created it, or [`ddl`](super::ddl) in a
/// migration. Both may draw from one sequence without ever sharing an id, but then it has the gaps of the
/// latter.
///
/// A savepoint, as sqlx makes of a transaction in a transaction, takes the ids back that were drawn in it, if
/// it is rolled back. The lock stays until the outer transaction ends.
///
/// READ COMMITTED, PostgreSQL's default, is the isolation to use. In a stricter one a transaction that
/// waited for another hears that it could not be serialised
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to begin again.
///
/// See the [module](super) for what is dropped halfway.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Calls, Sqlx>;

/// The library `sqlx`, with PostgreSQL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Sqlx {}

impl Library for Sqlx {
    type Transaction<'a> = &'a mut PgConnection;
    type Within<'a> = Within<'a>;

    fn within(transaction: Self::Transaction<'_>) -> Self::Within<'_> {
        Within(transaction)
    }
}

/// Runs statements in a transaction of the caller's.
#[derive(Debug)]
pub struct Within<'a>(&'a mut PgConnection);

impl Executor for Within<'_> {
    const IN_TRANSACTION: bool = true;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        if !self.0.is_in_transaction() {
            return Err(Fault::outside(
                "begin one with `begin` of the pool or the connection, and pass `&mut *tx`",
            ));
        }
        let sql = inlined(&statement, "")?;
        let rows = rows(self.0, &sql).await.map_err(fault_of)?;
        Ok(Answer::rows(rows.iter().map(row_of).collect()))
    }
}
