//! A service that draws in a transaction of its own connection: idmill-sqlite and deadpool-sqlite use the
//! same rusqlite types.

use idmill_sqlite::idmill::Result;
use deadpool_sqlite::rusqlite::Transaction;

/// The next invoice number, in the caller's transaction.
pub fn number(transaction: &Transaction<'_>) -> Result<i64> {
    idmill_sqlite::next_in(transaction, "invoices")
}
