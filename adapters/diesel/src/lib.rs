//! Ids for services with diesel: small, unique, ordered, inside your transactions, async or blocking.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-diesel).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod errors;
mod ids;
pub mod postgres;

pub use self::errors::into_diesel;
pub use diesel;
#[cfg(feature = "async")]
pub use diesel_async;
pub use idmill;
/// The store with its own connections, for ranges in memory: see [`postgres::PostgresStore`].
#[cfg(feature = "store")]
pub use idmill_postgres;

/// Only for the macros.
#[doc(hidden)]
pub mod __private {
    pub use idmill_sql::column::{from_column, to_column};
}
