//! Building blocks for store implementations: shared parsing, printing and error handling.
//!
//! - [`Address`]: parses and prints `HOST:PORT`.
//! - [`Authority`]: the hosts and the login of a URL.
//! - [`CompareAndSet`]: turns any storage with conditional writes into a store.
//! - [`Contention`]: the retry policy for lost races.
//! - [`Remembered`]: a cache of sequences as last read or written.
//! - [`Asked`]: the error kind after a failure, by the kind of request; [`Fault`]: the failure of a request.
//! - [`Numbers`]: validates a stored sequence; [`InvalidRow`]: the reason why it is invalid.
//! - [`Fill`]: fills a page of sequences or records.
//! - [`history`]: the policy after a detected failover or restore: `failover=refuse`.
//! - [`options`](mod@options): declares the options of a store once. URL parsing, validation, errors and
//!   documentation use this declaration.
//! - [`paging`]: page limits and cursors in the forms that drivers need.
//! - [`decide`], [`fits`]: decide a reserve.
//! - [`must_fit`], [`typed`]: check that a grant has every id a transaction requested, and convert the ids to
//!   the caller's type.
//! - [`Preferred`]: the order in which calls try several servers.
//! - [`query`]: parses and prints the parts of a URL.
//! - [`secrets`]: removes passwords and other secrets from URLs.
//! - [`Mode`]: read-only, read-write, or create: `mode=ro|rw|rwc`.
//! - [`SharedConnection`]: one connection for all callers, and one attempt at a time to open it.
//! - [`visible`]: escapes invisible characters of names; [`is_invisible`].
//! - [`witness_beside`]: the name of the records table; [`never_made`]: the error if it is missing.
//! - [`store_calls!`](idmill::store_calls): forwards the calls of [`Store`](idmill::store::Store) to methods
//!   of another type.
//!
//! - [`Target`]: the store that a URL names. The URL's [`Scheme`] selects the parser, and [`connect`] opens
//!   the store.
//! - [`Existing`]: a store that never creates a sequence.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod address;
mod among;
mod authority;
mod cas;
mod column;
mod contention;
mod existing;
mod fault;
mod fill;
pub mod history;
pub mod mode;
pub mod options;
pub mod paging;
mod preferred;
pub mod query;
mod raise;
mod remembered;
mod row;
mod scheme;
pub mod secrets;
mod shared;
mod target;
mod transaction;
mod visible;
mod witness;

pub use address::Address;
pub use among::among;
pub use authority::Authority;
pub use cas::{CompareAndSet, Resend, Swapped, Swapping, Versioned};
pub use column::{ColumnPath, Largest};
pub use contention::{Contention, Contest};
pub use existing::Existing;
pub use fault::{Asked, Fault, advised, causes, chain, no_answer, said};
pub use fill::Fill;
pub use mode::Mode;
pub use preferred::Preferred;
pub use query::refuse;
pub use raise::{create_at, raise};
pub use remembered::{PerSequence, Remembered};
pub use row::{InvalidRow, Numbers};
pub use scheme::{CONNECT_TIMEOUT, Read, Scheme, connect, open};
pub use shared::SharedConnection;
pub use target::{Target, WindowTarget, WindowView};
pub use transaction::{decide, fits, must_fit, typed};
pub use visible::{is_invisible, visible};
pub use witness::{never_made, witness_beside};

#[doc(hidden)] // for the macros
pub use idmill;
