//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use idmill::store::Bounds;
use idmill::{Id, IdRange, Result};
use idmill_kit::history::Failover;
use idmill_sql::mysql;
use mysql_async::Transaction;

use super::session::Bare;

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// ```no_run
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// use idmill_mysql::driver::{Pool, TxOpts, prelude::Queryable};
/// use idmill_mysql::{MysqlStore, next_in};
///
/// let pool = Pool::new("mysql://app:secret@localhost/shop");
/// MysqlStore::from_pool(&pool).await?; // creates the table, once
///
/// let mut tx = pool.start_transaction(TxOpts::default()).await?;
/// let number: i64 = next_in(&mut tx, "invoices").await?;
/// tx.exec_drop("INSERT INTO invoices (number, total) VALUES (?, ?)", (number, 4200)).await?;
/// tx.commit().await?; // the number and the invoice, or neither
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut Transaction<'_>, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    transaction: &mut Transaction<'_>,
    name: &str,
    count: u64,
) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps: a transaction that rolls back gives its ids to
/// the next one. The price is that transactions which draw from one sequence run one after another, from the
/// first id to the commit: so draw late and commit soon. One round trip as a rule, at any isolation level.
///
/// The sequence is created on first use, in the same transaction; the table is not, since to create one would
/// commit: [`MysqlStore::from_pool`](super::MysqlStore::from_pool) does. It is looked for in the database that the
/// connection uses. The sequences are those of [`MysqlStore`](super::MysqlStore), and both may draw from one
/// without ever sharing an id, but then it has the gaps of the latter.
///
/// A commit is as durable as the server makes it: this is looked at by the store, and not here.
#[derive(Clone, Debug)]
pub struct InTransaction<T>(idmill_sql::InTransaction<T, mysql::Draws>);

impl<T: Id> InTransaction<T> {
    /// The sequence of this name, in the table `idmill_sequences`, with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn new(name: &str) -> Result<Self> {
        idmill_sql::InTransaction::new(name).map(Self)
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self(self.0.bounds(bounds))
    }

    /// Another table, as in [`MysqlOptions::table`](super::MysqlOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(self, table: &str) -> Result<Self> {
        self.0.table(table).map(Self)
    }

    /// What happens if the sequence was last written by another server, whose last writes may be missing
    /// here. Default [`Failover::Refuse`]. What is done about it commits or rolls back with the transaction.
    /// With [`Failover::Allow`] nobody looks who wrote last, as it has to be where statements are logged
    /// (`binlog_format = STATEMENT`).
    #[must_use]
    pub fn failover(self, failover: Failover) -> Self {
        Self(self.0.failover(failover))
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &mut Transaction<'_>) -> Result<T> {
        let range = self.reserve(transaction, 1).await?;
        Ok(range.first().expect("a grant has as many ids as were asked for"))
    }

    /// The next `count` ids, exactly. After an error, and after this future was dropped, roll the transaction
    /// back: one that is committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than
    /// `count` ids are left; [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0 or the type
    /// cannot hold the next id; [`Unavailable`](idmill::ErrorKind::Unavailable) if others held the sequence
    /// for too long, the server chose this transaction to end a deadlock (as it may for those that create one
    /// sequence at the same time), or cannot be reached; [`NotFound`](idmill::ErrorKind::NotFound) if there
    /// is no table; [`Denied`](idmill::ErrorKind::Denied);
    /// [`StoreViolation`](idmill::ErrorKind::StoreViolation) if what is stored cannot be.
    ///
    /// [`Conflict`](idmill::ErrorKind::Conflict) if the sequence was last written by another server, see
    /// [`failover`](Self::failover); and if the server had ended the transaction before, after an
    /// error that it should have been rolled back for: the ids then are a gap.
    pub async fn reserve(&self, transaction: &mut Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        self.0.draw(&mut Bare(transaction), count).await
    }
}
