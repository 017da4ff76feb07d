//! SQLite.
//!
//! A [`Session`] is one connection to a database file and watches that file. [`Calls`] has the calls of
//! [`Store`](idmill::store::Store) on it. [`Table`] draws in a transaction of the caller. The adapter opens
//! connections and uses each for one call at a time.
//!
//! # Answers of the executor
//!
//! - A column is an integer, text or null. Blobs and text that is not UTF-8 are
//!   [`Value::Bytes`](crate::Value::Bytes). A number with a fraction, which no valid row has, may
//!   be passed as text.
//! - [`Answer::changed`](crate::Answer::changed) is the result of `sqlite3_changes` after a
//!   statement that [writes](crate::Statement::writes).
//! - [`EngineError::code`](crate::EngineError::code) is the *extended* result code as a number (`517`). The
//!   message begins with the text of `sqlite3_errmsg`.
//! - A statement without [`again`](crate::Statement::again) is not kept prepared.
//!
//! # Connections of a pool
//!
//! Pass the first connection to [`Session::adopt`] when the store is opened. Pass each later one to
//! [`Session::over`] with the [`Files`] of the first, or to [`Session::adopt_again`] if it may be the only
//! open connection. After its call, return the connection to the pool if the session
//! [is idle](Session::is_idle). Otherwise, and whenever a call is dropped, close it: its transaction may
//! still be open.
//!
//! # The table
//!
//! The table is not `STRICT`: it may be in the database of an application, and SQLite before 3.37 cannot open
//! a file with such a table. Instead, `CHECK`s enforce the types, and every row is checked when it is read.
//!
//! The table of the records is created when the first record is written. A record is a text under a name.
//! Before a transaction replaces a record, it reads the old text.

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

pub use crate::transaction::DEFAULT_TABLE;
pub use calls::Calls;
pub use classify::{classify, commit_failed, failed, passes};
pub use durable::{make_durable, verify_durable};
pub use file::Files;
pub use largest::largest;
pub use session::{Session, Settings};
pub use table::{NAME, Table};
