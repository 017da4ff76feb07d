//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use idmill::store::Bounds;
use idmill::{Id, IdRange, Result};
use idmill_sql::at_once;
use idmill_sql::sqlite::Table;
use rusqlite::Transaction;

use super::executor::Callers;

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// ```
/// # fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// use idmill_sqlite::{next_in, rusqlite};
///
/// let mut db = rusqlite::Connection::open_in_memory()?;
/// db.execute_batch("CREATE TABLE invoices (number INTEGER PRIMARY KEY, total INTEGER)")?;
///
/// let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
/// let number: i64 = next_in(&tx, "invoices")?;
/// tx.execute("INSERT INTO invoices VALUES (?1, ?2)", [number, 4200])?;
/// tx.commit()?; // the number and the invoice, or neither
/// # assert_eq!(number, 1);
/// # Ok(()) }
/// # demo().unwrap();
/// ```
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub fn next_in<T: Id>(transaction: &Transaction<'_>, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction)
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub fn reserve_in<T: Id>(transaction: &Transaction<'_>, name: &str, count: u64) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count)
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps: a transaction that rolls back gives its ids to
/// the next one. The price is that transactions which draw from one database run one after another. A commit
/// is as durable as the caller's connection makes it.
///
/// The sequence, and the table, are created on first use, in the same transaction. They are those of
/// [`SqliteStore`](super::SqliteStore), and both may draw from one sequence without ever sharing an id, but
/// then it has the gaps of the latter.
///
/// Begin the transaction with `BEGIN IMMEDIATE`. A deferred one serves too, as long as it reads nothing
/// before its first id: after a read, SQLite refuses to let it write if others have written since, with an
/// error that says so ([`Unavailable`](idmill::ErrorKind::Unavailable)); then roll it back and begin it
/// again.
#[derive(Clone, Debug)]
pub struct InTransaction<T>(idmill_sql::InTransaction<T, Table>);

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

    /// Another table, as in [`SqliteOptions::table`](super::SqliteOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(self, table: &str) -> Result<Self> {
        self.0.table(table).map(Self)
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub fn next(&self, transaction: &Transaction<'_>) -> Result<T> {
        let range = self.reserve(transaction, 1)?;
        Ok(range.first().expect("a grant has as many ids as were asked for"))
    }

    /// The next `count` ids, exactly.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than
    /// `count` ids are left; [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0 or the type
    /// cannot hold the next id; [`Unavailable`](idmill::ErrorKind::Unavailable) if others hold the database;
    /// [`Denied`](idmill::ErrorKind::Denied) if it is read-only;
    /// [`StoreViolation`](idmill::ErrorKind::StoreViolation) if what is stored cannot be.
    pub fn reserve(&self, transaction: &Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        at_once(self.0.draw(&mut Callers(transaction), count))
    }
}
