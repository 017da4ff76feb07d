#![doc = include_str!("../README.md")]

#[cfg(feature = "postgres")]
pub mod postgres;

pub use idmill;
pub use idmill::store::Mode;
pub use idmill::store::kit::history::Failover;
/// The driver, in the version whose connections and transactions are taken here.
pub use sea_orm as driver;
