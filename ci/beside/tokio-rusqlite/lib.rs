//! A service that draws in a transaction of its own connection: idmill-sqlite and tokio-rusqlite use the same
//! rusqlite types.

use idmill_sqlite::idmill::Result;
use tokio_rusqlite::rusqlite::Transaction;

/// The next invoice number, in the caller's transaction.
pub fn number(transaction: &Transaction<'_>) -> Result<i64> {
    idmill_sqlite::next_in(transaction, "invoices")
}
