//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill::store::Bounds;
use idmill::{Id, IdRange, Result};
use idmill_sql::at_once;
use idmill_sql::sqlite::Table;
use rusqlite::Transaction;

use super::executor::Callers;

/// Draws the next id of a sequence inside the caller's transaction, as [`InTransaction`] with its
/// defaults.
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
/// The errors of [`InTransaction::reserve`].
pub fn next_in<T: Id>(transaction: &Transaction<'_>, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction)
}

/// Draws exactly `count` ids of a sequence inside the caller's transaction, as [`InTransaction`]
/// with its defaults.
///
/// # Errors
/// The errors of [`InTransaction::reserve`].
pub fn reserve_in<T: Id>(transaction: &Transaction<'_>, name: &str, count: u64) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count)
}

/// Returns the statement that draws from a sequence inside a transaction of any other driver, such as diesel
/// or SeaORM. Parameters: the name, and the number of ids, at least 1. It returns one row with the first id.
/// It returns no row if the sequence does not exist or has too few ids left up to 2^63 - 1. The rules of
/// [`InTransaction`] apply, except that nothing is created. SQLite 3.35 or later is needed.
///
/// ```
/// let sql = idmill_sqlite::next_in_sql("idmill_sequences")?;
/// // With diesel, in a transaction:
/// // #[derive(QueryableByName)]
/// // struct Drawn { #[diesel(sql_type = BigInt)] first: i64 }
/// // let sql = format!("{sql} AS first");
/// // let draw = sql_query(sql).bind::<Text, _>("invoices").bind::<BigInt, _>(1);
/// // let first = draw.get_result::<Drawn>(conn)?.first;
/// # assert!(sql.starts_with("UPDATE "));
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
pub fn next_in_sql(table: &str) -> Result<String> {
    Ok(Table::new(table)?.published())
}

/// Draws ids of a sequence inside the caller's own transactions.
///
/// The ids commit together with the rows that they number. So there are no gaps: if a transaction rolls back,
/// the next one gets its ids. The cost is that transactions that draw from one database run one after
/// another. A commit is as durable as the caller's connection makes it.
///
/// The sequence and the table are created on first use, in the same transaction. A
/// [`SqliteStore`](super::SqliteStore) may draw from the same sequence and never gets the same id, but it
/// leaves gaps.
///
/// Begin the transaction with `BEGIN IMMEDIATE`. A deferred transaction works too, if it reads nothing before
/// its first id. After a read, SQLite rejects the transaction's write if others have written since
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)): roll it back and begin it again.
#[derive(Clone, Debug)]
pub struct InTransaction<T>(idmill_sql::InTransaction<T, Table>);

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

    /// Uses another table, as in [`SqliteOptions::table`](super::SqliteOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    pub fn table(self, table: &str) -> Result<Self> {
        self.0.table(table).map(Self)
    }

    /// Draws the next id.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve).
    pub fn next(&self, transaction: &Transaction<'_>) -> Result<T> {
        let range = self.reserve(transaction, 1)?;
        Ok(range.first().expect("a grant has the requested number of ids"))
    }

    /// Draws exactly `count` ids.
    ///
    /// # Errors
    /// No ids are taken in any of these cases.
    ///
    /// - [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than `count` ids are left;
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0 or the next id is below the type's
    ///   smallest;
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if the database is locked;
    /// - [`Denied`](idmill::ErrorKind::Denied) if the database is read-only;
    /// - [`StoreViolation`](idmill::ErrorKind::StoreViolation) if the stored row is invalid; `Conflict` or
    ///   `Unsupported` for another table.
    pub fn reserve(&self, transaction: &Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        at_once(self.0.draw(&mut Callers(transaction), count))
    }
}
