//! A service that uses idmill and sqlx 0.8 with SQLite.

pub use idmill_sqlite::SqliteStore;
pub use sqlx::SqlitePool;
