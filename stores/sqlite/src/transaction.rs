//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use std::future::ready;

use idmill::Result;
use idmill_sql::sqlite::Table;
use idmill_sql::{Answer, Blocking, Fault, Library, Statement};
use rusqlite::Transaction;

use super::executor::{fault, run};

idmill_sql::draws_in! {
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
    blocking(next, reserve) &Transaction<'_>
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
pub type InTransaction<T> = idmill_sql::InTransaction<T, Table, Rusqlite, Blocking>;

/// Marks transactions of `rusqlite`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Rusqlite {}

impl Library<Blocking> for Rusqlite {
    type Transaction<'a> = &'a Transaction<'a>;

    fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send {
        ready(run(transaction, &statement).map_err(fault))
    }
}
