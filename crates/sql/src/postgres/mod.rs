//! PostgreSQL: the rows of a table, what is asked of `SEQUENCE`s, and what an error means.
//!
//! # What an adapter does
//!
//! - Its [`Executor`](crate::Executor) sends one statement, with the types of its values: [`Value::Text`] is
//!   `text`, [`Value::Texts`] is `text[]`. No answer has other columns than `text`, each of which may be
//!   `NULL`.
//! - In the place of [`Value::Patience`] it passes how long the statement may wait for locks, as text:
//!   `100ms`. That is shorter than it waits for the answer itself, so that it is the server who gives up and
//!   it is known that nothing was done. A statement that hears [`LOCK_NOT_AVAILABLE`] may be sent again, with
//!   more of it. In a transaction of the caller's it passes an empty text.
//! - What the server says is [`Fault::Engine`](crate::Fault::Engine), with its severity. A warning that
//!   [`is_of_commit`] makes a write [`Fault::Warned`](crate::Fault::Warned). Where somebody else may have a
//!   transaction open on the connection, and has, a write is
//!   [`Fault::Uncommitted`](crate::Fault::Uncommitted): [`TRANSACTION_STATUS`] tells.
//! - Where a fault [`is_read_only`], it asks [`IS_STANDBY`] on the same connection: [`read_only`] is the fault.
//! - A connection is kept if the statement succeeded, or its fault [`leaves_connection`]; one whose rows are
//!   not what [`must_be_durable`] wants is best closed.
//! - On sessions of its own it may keep the statements of reserves prepared: [`Prepared`] says how.
//! - [`Calls`] does all else, and [`InTransaction`](crate::InTransaction) in a transaction of the caller's.
//!
//! [`Value::Text`]: crate::Value::Text
//! [`Value::Texts`]: crate::Value::Texts
//! [`Value::Patience`]: crate::Value::Patience

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
pub use self::place::{Place, Relation, look, lookalikes};
pub use self::prepared::{PREPARED_IS_MISSING, Prepared, SYSTEM_IDENTIFIER};
pub use self::run::{TRIES, crowded};
pub use self::sessions::{CONNECTIONS, Driver, Sessions, WAITING, halfway};
pub use self::table::{DEFAULT_TABLE, NAME, Table, check_name, ddl, witness_ddl};
pub use self::text::parts;
pub use crate::column::quoted;
