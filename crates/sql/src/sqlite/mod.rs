//! SQLite.
//!
//! A [`Session`] is one connection to a database file that is watched, on which [`Calls`] are those of
//! [`Store`](idmill::store::Store). A [`Table`] is drawn from in a transaction of the caller's. The adapter opens
//! connections, and has each used by one call at a time.
//!
//! # What the executor answers
//!
//! - A column is an integer, a text or null; text that is not UTF-8, and a blob, are
//!   [`Value::Bytes`](crate::Value::Bytes). A number with a fraction, which is nowhere by right, may be its
//!   text.
//! - [`Answer::changed`](crate::Answer::changed) is what `sqlite3_changes` says after a statement that
//!   [writes](crate::Statement::writes).
//! - [`EngineError::code`](crate::EngineError::code) is the *extended* result code as a number (`517`), the
//!   message what `sqlite3_errmsg` says.
//! - A statement that is not sent [again](crate::Statement::again) is not kept prepared.
//!
//! # Connections of a pool
//!
//! One by [`Session::adopt`], when the store is opened; each later one by [`Session::over`], with the
//! [`Files`] of the first, or by [`Session::adopt_again`] where no other may be open. After its call it goes
//! back to the pool if the session [is idle](Session::is_idle). If not, and whenever a call is dropped, it
//! has to be closed: its transaction may still be open.
//!
//! # The table
//!
//! It is not `STRICT`: it may live in the database of an application, and SQLite before
//! 3.37 cannot open a file that has even one such table. `CHECK`s hold the types instead, and
//! every row is checked when it is read.
//!
//! Beside it is the table of the records, once one was written: a text under a name, written in a transaction
//! that has read what it replaces.

mod calls;
mod classify;
mod codes;
mod durable;
mod file;
mod largest;
mod records;
mod rows;
mod session;
mod table;

pub use calls::Calls;
pub use classify::{classify, commit_failed, failed, passes};
pub use durable::{make_durable, verify_durable};
pub use file::Files;
pub use largest::largest;
pub use session::{Session, Settings};
pub use table::{DEFAULT_TABLE, NAME, Table};
