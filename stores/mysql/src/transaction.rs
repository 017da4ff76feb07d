//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill::store::Bounds;
use idmill::{Id, IdRange, Result};
use idmill_kit::history::Failover;
use idmill_sql::mysql;
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
#[derive(Clone, Debug)]
pub struct InTransaction<T>(idmill_sql::InTransaction<T, mysql::Draws>);

impl<T: Id> InTransaction<T> {
    /// Creates a handle for the sequence of this name in the table `idmill_sequences`, with the bounds of the
    /// id type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    pub fn new(name: &str) -> Result<Self> {
        idmill_sql::InTransaction::new(name).map(Self)
    }

    /// Sets the bounds that the sequence is created with if it does not exist yet.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self(self.0.bounds(bounds))
    }

    /// Uses another table, as in [`MysqlOptions::table`](super::MysqlOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    pub fn table(self, table: &str) -> Result<Self> {
        self.0.table(table).map(Self)
    }

    /// Sets the policy for a sequence that was last written by another server, whose last writes may be
    /// missing here. Default [`Failover::Refuse`]. If the row is marked as written by this server, that
    /// change commits or rolls back with the transaction. With [`Failover::Allow`] the writer is not checked,
    /// as is necessary if the server logs statements (`binlog_format = STATEMENT`).
    #[must_use]
    pub fn failover(self, failover: Failover) -> Self {
        Self(self.0.failover(failover))
    }

    /// Draws the next id.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &mut Transaction<'_>) -> Result<T> {
        let range = self.reserve(transaction, 1).await?;
        Ok(range.first().expect("a grant has the requested number of ids"))
    }

    /// Draws exactly `count` ids. After an error, or if this future was dropped, roll the transaction back: a
    /// commit may leave a gap.
    ///
    /// # Errors
    /// After a rollback, no ids are taken in any of these cases, except for the second `Conflict`.
    ///
    /// - [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than `count` ids are left;
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0 or the next id is below the type's
    ///   smallest;
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if other transactions locked the sequence for too
    ///   long, if the server chose this transaction to end a deadlock (which is possible when several
    ///   transactions create one sequence at the same time), or if the server is unreachable;
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if there is no table;
    /// - [`Denied`](idmill::ErrorKind::Denied) if a permission is missing;
    /// - [`StoreViolation`](idmill::ErrorKind::StoreViolation) if the stored row is invalid; `Unsupported`
    ///   for another version;
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the sequence was last written by another
    ///   server, see [`failover`](Self::failover);
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the server had already ended the transaction, after an
    ///   error that required a rollback: the ids are then a gap.
    pub async fn reserve(&self, transaction: &mut Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        self.0.draw(&mut Bare(transaction), count).await
    }
}
