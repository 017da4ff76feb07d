//! For those who write stores: what every store needs, so that all of them read, print and fail alike.
//!
//! - [`Address`]: `HOST:PORT`, read and printed.
//! - [`CompareAndSet`]: makes a store of what can write on a condition.
//! - [`Contention`]: how a store tries again while others are faster.
//! - [`history`]: what a store does after a failover, or a restore, that it has noticed: `failover=refuse`.
//! - [`options`]: the options of a store in one table, by which URLs are read, values checked, errors worded
//!   and pages written.
//! - [`query`]: the parts of a URL, read and printed.
//! - [`secrets`]: what of a URL may be shown.
//! - [`Mode`](mode::Mode): what opening a store may do, `mode=ro|rw|rwc`.
//! - [`SharedConnection`]: one connection for all callers, and one attempt to open it.
//! - [`witness_beside`]: what the table of the records is called.
//! - [`store_calls!`](crate::store_calls): the calls of [`Store`](crate::store::Store), for a store whose
//!   work is in methods of its own.
//!
//! A URL leads to a store by a [`Target`](crate::store::Target), whose [`Scheme`](crate::store::Scheme) is
//! [registered](crate::store::register).

mod address;
mod calls;
pub mod cas;
mod contention;
pub mod history;
pub mod mode;
pub mod options;
pub mod query;
mod refuse;
pub mod secrets;
mod shared;
mod witness;

#[doc(hidden)]
pub use crate::store_call;
pub use crate::store_calls;
pub use address::Address;
pub use cas::{CompareAndSet, Resend, Seen, Swapped};
pub use contention::{Contention, Contest};
pub use refuse::refuse;
pub use shared::SharedConnection;
pub use witness::witness_beside;
