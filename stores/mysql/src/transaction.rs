//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill::Result;
use idmill_sql::{Answer, Executor as _, Fault, Library, Statement, mysql};
use mysql_async::Transaction;

use super::session::Bare;

idmill_sql::draws_in! {
    /// ```no_run
    /// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// use idmill_mysql::driver::{Pool, TxOpts, prelude::Queryable};
    /// use idmill_mysql::{MysqlOptions, MysqlStore, next_in};
    ///
    /// let pool = Pool::new("mysql://app:secret@localhost/shop");
    /// MysqlStore::from_pool(&pool, MysqlOptions::default()).await?; // creates the table, once
    ///
    /// let mut tx = pool.start_transaction(TxOpts::default()).await?;
    /// let number: i64 = next_in(&mut tx, "invoices").await?;
    /// tx.exec_drop("INSERT INTO invoices (number, total) VALUES (?, ?)", (number, 4200)).await?;
    /// tx.commit().await?; // the number and the invoice, or neither
    /// # Ok(()) }
    /// ```
    async &mut Transaction<'_>
}

/// Returns the statement that draws `count` ids of a sequence inside a transaction of any other driver, such
/// as sqlx, diesel or SeaORM. Its parameter is the name. If it changes one row, the first id is its insert
/// id: `last_insert_id()` of the driver's result, or `SELECT LAST_INSERT_ID()` on the same connection. If it
/// changes no row, it drew nothing, and **`LAST_INSERT_ID()` has the id of an earlier statement**: the
/// sequence does not exist, has no more than `count` ids left, or was last written by another server. The
/// rules of [`InTransaction`] apply, except that nothing is created.
///
/// ```
/// let sql = idmill_mysql::next_in_sql("idmill_sequences", 1)?;
/// // With sqlx, in a transaction:
/// // let drawn = sqlx::query(AssertSqlSafe(sql)).bind("invoices").execute(&mut *tx).await?;
/// // let first = (drawn.rows_affected() == 1).then(|| drawn.last_insert_id());
/// # assert!(sql.starts_with("UPDATE "));
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name, or a count of 0.
pub fn next_in_sql(table: &str, count: u64) -> Result<String> {
    mysql::Table::new(table)?.published(count)
}

/// Draws ids of a sequence inside the caller's own transactions.
///
/// The ids commit together with the rows that they number. So there are no gaps: if a transaction rolls back,
/// the next one gets its ids. The cost is that transactions that draw from one sequence run one after
/// another, from the first id to the commit. So draw late and commit soon. A draw usually takes one round
/// trip, at any isolation level.
///
/// The sequence is created on first use, in the same transaction. The table must exist in the connection's
/// database, since creating a table would commit the transaction:
/// [`MysqlStore::from_pool`](super::MysqlStore::from_pool) creates it. A [`MysqlStore`](super::MysqlStore)
/// may draw from the same sequence and never gets the same id, but it leaves gaps.
///
/// A commit is as durable as the server makes it. The store checks the server's durability settings, but this
/// type does not.
pub type InTransaction<T> = idmill_sql::InTransaction<T, mysql::Draws, MysqlAsync>;

/// Marks transactions of `mysql_async`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum MysqlAsync {}

impl Library for MysqlAsync {
    type Transaction<'a, 't: 'a> = &'a mut Transaction<'t>;

    async fn execute<'a, 't: 'a>(
        transaction: &mut &'a mut Transaction<'t>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        Bare(&mut **transaction).execute(statement).await
    }
}
