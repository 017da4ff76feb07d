//! A service that uses idmill and diesel.

pub use idmill_sqlite::SqliteStore;
pub use diesel::SqliteConnection;
