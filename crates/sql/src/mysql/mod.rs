//! MySQL and MariaDB: one row a sequence in a table of InnoDB, and one `UPDATE` a reserve.
//!
//! - [`Calls`] has the calls of a store, over connections of the adapter's, and [`Draws`] is for drawing
//!   ids in a transaction of the caller's.
//! - [`classify`] says what a fault means for the ids, and [`failed`] says it to the caller.
//! - [`must_be_durable`] and [`settings`] are for each connection that an adapter makes.
//!
//! # What an adapter brings
//!
//! Statements are plain text with every value in them, but for that of most reserves: it has values, which an
//! adapter passes where its connections keep statements prepared, and [`whole`] writes into the text for one
//! that sends text. A column may come as text, as bytes or as a number; a number above `i64::MAX` as its
//! digits. Of an answer,
//!
//! - `changed` counts the rows that were *changed*, not those that were found: a connection that was made
//!   with `CLIENT_FOUND_ROWS` is to be refused;
//! - `insert_id` is what this statement gave to `LAST_INSERT_ID`, as the server's answer to it says; `None`
//!   and 0 both mean that it says nothing. What a second statement would say may be left over from an earlier
//!   one.
//!
//! An error of the server's has its number as its code: `1213`, not the SQLSTATE `40001`.
//!
//! After each statement that writes, the adapter looks at the status flags in the server's answer. Outside a
//! transaction, `SERVER_STATUS_AUTOCOMMIT` must be set and `SERVER_STATUS_IN_TRANS` not; inside one,
//! `SERVER_STATUS_IN_TRANS` must be set. All else is [`Fault::Uncommitted`](crate::Fault::Uncommitted). Of a
//! pool that the caller made, it looks before it sends anything too.
//!
//! A connection is not used again after a fault for which [`leaves_connection`] is false: after a failover it
//! may lead to a replica, and the next one to the primary.

mod adopt;
mod calls;
mod classify;
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

pub use adopt::refused;
pub use calls::Calls;
pub use classify::{classify, failed, is_duplicate, leaves_connection};
pub use largest::{end_reads_after, largest};
pub use server::{must_be_durable, settings};
pub use table::{DEFAULT_TABLE, NAME, Table, whole};
pub use transaction::Draws;
