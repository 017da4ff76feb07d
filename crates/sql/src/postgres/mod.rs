//! PostgreSQL: the rows of a table, the statements on `SEQUENCE`s, and the classification of
//! errors.
//!
//! # Requirements for an adapter
//!
//! - Its [`Executor`](crate::Executor) sends one statement, with the types of its values:
//!   [`Value::Text`] is `text`, [`Value::Texts`] is `text[]`. All columns of an answer are `text`
//!   and may be `NULL`.
//! - For [`Value::Timeout`] the adapter passes the maximum wait of the statement for locks, as text: `100ms`.
//!   That limit is shorter than the timeout for the answer, so that the server times out first and certainly
//!   has done nothing. A statement that fails with [`LOCK_NOT_AVAILABLE`] may be sent again with a longer
//!   limit. In a transaction of the caller the adapter passes an empty text.
//! - An error of the server is [`Fault::Engine`](crate::Fault::Engine), with its severity. If
//!   [`is_of_commit`] holds for a warning, the write is [`Fault::Warned`](crate::Fault::Warned). If the
//!   connection may be shared, check [`TRANSACTION_STATUS`] after a write: a write in an open transaction is
//!   [`Fault::Uncommitted`](crate::Fault::Uncommitted).
//! - If a fault [`is_read_only`], the adapter runs [`IS_STANDBY`] on the same connection, and
//!   [`read_only`] returns the fault to report.
//! - Keep a connection if the statement succeeded, or if its fault [`leaves_connection`]; close it
//!   if its rows fail [`must_be_durable`].
//! - On its own sessions an adapter may keep the statements of reserves prepared: see [`Prepared`].
//! - [`Calls`] does everything else. In a transaction of the caller, [`InTransaction`](crate::InTransaction)
//!   does.
//!
//! [`Value::Text`]: crate::Value::Text
//! [`Value::Texts`]: crate::Value::Texts
//! [`Value::Timeout`]: crate::Value::Timeout

mod adopt;
mod batch;
mod calls;
mod classify;
mod durable;
mod history;
mod largest;
pub mod native;
mod open;
mod place;
mod prepared;
mod records;
mod rows;
mod run;
mod sessions;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod transaction;

pub use self::adopt::refused;
pub use self::calls::Calls;
pub use self::classify::{
    CANNOT_CONNECT_NOW, DATA_CORRUPTED, IS_STANDBY, LOCK_NOT_AVAILABLE, SEQUENCE_LIMIT, UNDEFINED_TABLE,
    busy, classify, exhausted, failed, is_of_commit, is_read_only, leaves_connection, not_created, read_only,
    unconnected,
};
pub use self::durable::{CURRENT_TRANSACTION, Keeps, TRANSACTION_STATUS, must_be_durable};
pub use self::history::server;
pub use self::largest::largest;
pub use self::open::must_sync;
pub use self::place::{Lookup, Relation, look, lookalikes};
pub use self::prepared::{PREPARED_IS_MISSING, Prepared, SYSTEM_IDENTIFIER};
pub use self::run::{TRIES, crowded};
pub use self::sessions::{CONNECTIONS, Driver, Sessions, WAITING, halfway};
pub use self::table::{NAME, Table, check_name, ddl, witness_ddl};
pub use self::text::parts;
pub use crate::column::quoted;
pub use crate::transaction::DEFAULT_TABLE;
