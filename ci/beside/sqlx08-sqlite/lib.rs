//! A service with both.

pub use idmill_sqlite::SqliteStore;
pub use sqlx::SqlitePool;
