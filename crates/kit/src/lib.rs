//! For those who write stores: what every store needs, so that all of them read, print and fail alike.
//!
//! - [`Address`]: `HOST:PORT`, read and printed.
//! - [`Authority`]: hosts, and who logs in.
//! - [`CompareAndSet`]: makes a store of what can write on a condition.
//! - [`Contention`]: how a store tries again while others are faster.
//! - [`Remembered`]: sequences as a store last saw them.
//! - [`Asked`]: doubt after a failure, by the kind of request.
//! - [`Numbers`]: a stored sequence, checked before it is believed; [`Fault`]: a reason not to.
//! - [`Fill`]: fills a page of sequences, or of records.
//! - [`history`]: what a store does after a failover, or a restore, that it has noticed: `failover=refuse`.
//! - [`options`](mod@options): the options of a store in one table, by which URLs are read, values checked, errors worded
//!   and pages written.
//! - [`paging`]: the pages of a list, as drivers want them.
//! - [`must_fit`], [`typed`]: whether a grant is all that a transaction asked for, and its ids as the caller's type.
//! - [`query`]: the parts of a URL, read and printed.
//! - [`secrets`]: what of a URL may be shown.
//! - [`Mode`]: what opening a store may do, `mode=ro|rw|rwc`.
//! - [`SharedConnection`]: one connection for all callers, and one attempt to open it.
//! - [`witness_beside`]: what the table of the records is called; [`never_made`]: the error if it is missing.
//! - [`store_calls!`](idmill::store_calls): the calls of [`Store`](idmill::store::Store), for a store whose
//!   work is in methods of its own.
//!
//! - [`Target`]: what a URL leads to. Its [`Scheme`] says what reads the URL, and [`connect`] opens it.
//! - [`Existing`]: a store in which using a sequence does not create it.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod address;
mod among;
mod authority;
mod cas;
mod column;
mod contention;
mod doubt;
mod existing;
mod fill;
pub mod history;
pub mod mode;
pub mod options;
pub mod paging;
pub mod query;
mod raise;
mod refuse;
mod remembered;
mod row;
mod scheme;
pub mod secrets;
mod shared;
mod target;
mod transaction;
mod witness;

pub use address::Address;
pub use among::among;
pub use authority::Authority;
pub use cas::{CompareAndSet, Resend, Seen, Swapped, Swapping};
pub use column::{ColumnPath, Largest};
pub use contention::{Contention, Contest};
pub use doubt::{Asked, advised, causes, chain, said};
pub use existing::Existing;
pub use fill::Fill;
pub use mode::Mode;
pub use raise::{create_at, raise};
pub use refuse::refuse;
pub use remembered::Remembered;
pub use row::{Fault, Numbers};
pub use scheme::{CONNECT_TIMEOUT, Read, Scheme, connect, open};
pub use shared::SharedConnection;
pub use target::{Target, WindowTarget, WindowView};
pub use transaction::{must_fit, typed};
pub use witness::{never_made, witness_beside};

#[doc(hidden)] // for the macros
pub use idmill;
