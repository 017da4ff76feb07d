//! A service that uses idmill and SeaORM.

pub use idmill_sqlite::SqliteStore;
pub use sea_orm::DatabaseConnection;
