//! Ids for services with sqlx: small, unique, ordered, in ranges or inside your transactions, from
//! your existing pool.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-sqlx).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(all(doctest, feature = "postgres"), doc = include_str!("../../../README.md"))]

mod error;
mod ids;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod version;

pub use self::error::into_sqlx;
pub use idmill;
pub use idmill_kit::Mode;
pub use idmill_kit::history::Failover;
/// The driver, in the version whose pools and connections this crate takes.
pub use sqlx as driver;

/// Checks that the connection is in a transaction that sqlx began.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn must_be_inside(connection: &impl sqlx::Connection) -> Result<(), idmill_sql::Fault> {
    if connection.is_in_transaction() {
        return Ok(());
    }
    Err(idmill_sql::Fault::outside("call `begin` on the pool or the connection, and pass `&mut *tx`"))
}

/// Only for the macros.
#[doc(hidden)]
pub mod __private {
    pub use idmill_sql::column::{from_column, to_column};
}
