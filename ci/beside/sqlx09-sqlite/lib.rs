//! A service that uses idmill and this library.

pub use idmill_sqlite::SqliteStore;
pub use sqlx::SqlitePool;
