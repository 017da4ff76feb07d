#![doc = include_str!("../README.md")]

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod version;

pub use idmill;
pub use idmill::store::Mode;
/// The driver, in the version whose pools and connections are taken here.
pub use sqlx as driver;
