#![doc = include_str!("../README.md")]

pub mod postgres;

pub use diesel;
#[cfg(feature = "async")]
pub use diesel_async;
pub use idmill;
/// The store whose connections are its own, for ranges in memory: see [`postgres::PostgresStore`].
#[cfg(feature = "async")]
pub use idmill_postgres;
