//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use std::marker::PhantomData;

use idmill::store::Bounds;
use idmill::{Id, Range, Result, SequenceName};
use idmill_sql::sqlite::{self, DEFAULT_TABLE, Table};
use sqlx::SqliteConnection;

use super::executor::Within;

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`] with everything at its
/// default.
///
/// ```no_run
/// # async fn demo(pool: &idmill_sqlx::driver::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use idmill_sqlx::driver as sqlx;
/// use idmill_sqlx::sqlite::next_in;
///
/// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
/// let number: i64 = next_in(&mut *tx, "invoices").await?;
/// sqlx::query("INSERT INTO invoices VALUES (?1, 4200)").bind(number).execute(&mut *tx).await?;
/// tx.commit().await?; // the number and the invoice, or neither
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut SqliteConnection, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`] with everything at
/// its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    transaction: &mut SqliteConnection,
    name: &str,
    count: u64,
) -> Result<Range<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// A sequence that is drawn from inside the caller's own transactions: pass `&mut *tx`.
///
/// The ids commit with what they number, so there are no gaps: a transaction that rolls back gives its ids to
/// the next one. The price is that transactions which draw from one database run one after another. A commit
/// is as durable as the caller's connection makes it.
///
/// The sequence, and the table, are created on first use, in the same transaction. They are those of
/// [`SqliteStore`](super::SqliteStore), and both may draw from one sequence without ever sharing an id, but
/// then it has the gaps of the latter.
///
/// Begin the transaction with `begin_with("BEGIN IMMEDIATE")`. A deferred one, which `begin` begins, works
/// too if it reads nothing before its first id. After a read, SQLite refuses its write if others have written
/// since ([`Unavailable`](idmill::ErrorKind::Unavailable)). Then roll it back and begin it again.
#[derive(Clone, Debug)]
pub struct InTransaction<T> {
    name: SequenceName,
    bounds: Bounds,
    table: Table,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> InTransaction<T> {
    /// The sequence of this name, in the table `idmill_sequences`, with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn new(name: &str) -> Result<Self> {
        let (name, table) = (SequenceName::new(name)?, Table::new(DEFAULT_TABLE)?);
        Ok(Self { name, bounds: Bounds::of::<T>(), table, of: PhantomData })
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Another table, as in [`SqliteOptions::table`](super::SqliteOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.table = Table::new(table)?;
        Ok(self)
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &mut SqliteConnection) -> Result<T> {
        let range = self.reserve(transaction, 1).await?;
        Ok(range.first().expect("a grant has as many ids as were asked for"))
    }

    /// The next `count` ids, exactly. If this future was dropped, roll the transaction back: one that is
    /// committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than
    /// `count` ids are left; [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0, the type
    /// cannot hold the next id, or the connection is in no transaction that sqlx began;
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if others hold the database;
    /// [`Denied`](idmill::ErrorKind::Denied) if it is read-only;
    /// [`StoreViolation`](idmill::ErrorKind::StoreViolation) if what is stored cannot be.
    pub async fn reserve(&self, transaction: &mut SqliteConnection, count: u64) -> Result<Range<T>> {
        let mut within = Within(transaction);
        sqlite::reserve_in(&mut within, &self.table, &self.name, self.bounds, count).await
    }
}
