//! A service with both, which draws in a transaction on a connection of its pool: the types are the same.

use idmill_sqlite::idmill::Result;
use rusqlite::Transaction;

/// The next invoice number, in the caller's transaction.
pub fn number(transaction: &Transaction<'_>) -> Result<i64> {
    idmill_sqlite::next_in(transaction, "invoices")
}
