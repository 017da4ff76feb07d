//! MySQL and MariaDB: one row per sequence in an InnoDB table, and one `UPDATE` per reserve.
//!
//! - [`Calls`] has the calls of a store, over connections of the adapter. [`Draws`] draws ids in a
//!   transaction of the caller.
//! - [`classify`] returns the error kind of a fault, and [`failed`] the error for the caller.
//! - [`must_be_durable`] and [`settings`] are for each connection that an adapter opens.
//!
//! # Requirements for an adapter
//!
//! Statements are plain text with all values included. Only the usual statement of reserves has
//! parameters: an adapter that keeps statements prepared passes them, and [`whole`] writes them
//! into the text for an adapter that sends text. A column may be returned as text, as bytes or as a
//! number; a number above `i64::MAX` as its digits. In an answer,
//!
//! - `changed` counts the rows that were *changed*, not the rows that were found: reject a
//!   connection that was opened with `CLIENT_FOUND_ROWS`, or set
//!   [`COUNTS_MATCHED`](crate::Executor::COUNTS_MATCHED) in a transaction of the caller, which then reads
//!   each written row;
//! - `insert_id` is the value that this statement passed to `LAST_INSERT_ID`, as in the server's answer to
//!   it. `None` and 0 both mean that there is no such value. Do not get `insert_id` from `SELECT
//!   LAST_INSERT_ID()`, which may return an earlier statement's value.
//!
//! The code of a server error is its number: `1213`, not the SQLSTATE `40001`.
//!
//! After each statement that writes, the adapter checks the status flags in the server's answer. Outside a
//! transaction, `SERVER_STATUS_AUTOCOMMIT` must be set and `SERVER_STATUS_IN_TRANS` not; inside one,
//! `SERVER_STATUS_IN_TRANS` must be set, or a savepoint before the statement must have succeeded. All other
//! states are [`Fault::Uncommitted`](crate::Fault::Uncommitted). If the caller made the pool, the adapter
//! also checks a connection's state before it sends anything.
//!
//! A connection is not reused after a fault for which [`leaves_connection`] is false, nor after
//! [`Executor::discard`](crate::Executor::discard): after a failover it may lead to a replica, and the next
//! connection to the primary.

mod adopt;
mod calls;
mod classify;
mod fence;
mod history;
mod largest;
mod records;
mod reserve;
mod rows;
mod run;
mod server;
mod table;
#[cfg(test)]
mod tests;
mod transaction;

pub use crate::transaction::DEFAULT_TABLE;
pub use adopt::refused;
pub use calls::Calls;
pub use classify::{classify, failed, is_duplicate, leaves_connection};
pub use largest::{end_reads_after, largest};
pub use server::{must_be_durable, settings};
pub use table::{NAME, Table, whole};
pub use transaction::Draws;
