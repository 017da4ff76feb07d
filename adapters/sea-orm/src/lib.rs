//! Ids for services with SeaORM: small, unique, ordered, in ranges or inside your transactions,
//! from your existing connection.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-sea-orm).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod ids;
#[cfg(feature = "postgres")]
pub mod postgres;
mod version;

pub use idmill;
pub use idmill_kit::Mode;
pub use idmill_kit::history::Failover;
/// The driver, in the version whose connections and transactions this crate takes.
pub use sea_orm as driver;

/// Only for the macros.
#[doc(hidden)]
pub mod __private {
    pub use crate::ids::{from_column, to_value};
}
