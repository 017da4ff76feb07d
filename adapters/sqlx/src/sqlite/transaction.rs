//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill_sql::sqlite::Table;
use idmill_sql::{Answer, Fault, Library, Statement};
use sqlx::SqliteConnection;

use super::executor::run;
use crate::must_be_inside;

idmill_sql::draws_in! {
    /// ```no_run
    /// # async fn demo(pool: &idmill_sqlx::driver::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
    /// use idmill_sqlx::driver as sqlx;
    /// use idmill_sqlx::sqlite::next_in;
    ///
    /// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    /// let number: i64 = next_in(&mut tx, "invoices").await?;
    /// sqlx::query("INSERT INTO invoices VALUES (?1, 4200)").bind(number).execute(&mut *tx).await?;
    /// tx.commit().await?; // the number and the invoice, or neither
    /// # Ok(()) }
    /// ```
    async &mut SqliteConnection
}

/// A sequence that is drawn from inside the caller's own transactions: pass `&mut *tx`.
///
/// The ids commit together with the rows that they number. So there are no gaps: if a transaction rolls back,
/// the next one gets its ids. The cost: transactions that draw from one database run one after another. A
/// commit is as durable as the caller's connection makes it.
///
/// The sequence and the table are created on first use, in the same transaction. A
/// [`SqliteStore`](super::SqliteStore) may draw from the same sequence and never gets the same id, but it
/// leaves gaps.
///
/// Begin the transaction with `begin_with("BEGIN IMMEDIATE")`. A deferred transaction, such as one from
/// `begin`, works too if it reads nothing before its first id. After a read, SQLite rejects its write if
/// others have written since ([`Unavailable`](idmill::ErrorKind::Unavailable)): roll it back and begin it
/// again.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Table, Sqlx>;

/// Marks transactions of `sqlx` with SQLite.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Sqlx {}

impl Library for Sqlx {
    type Transaction<'a> = &'a mut SqliteConnection;

    async fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        must_be_inside(&**transaction)?;
        run(transaction, &statement).await
    }
}
