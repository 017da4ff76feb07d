//! A service with both.

pub use idmill_sqlite::SqliteStore;
pub use idmill_postgres::PostgresStore;
pub use sqlx::PgPool;
