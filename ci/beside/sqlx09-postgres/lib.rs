//! A service that uses idmill and sqlx 0.9 with PostgreSQL.

pub use idmill_sqlite::SqliteStore;
pub use idmill_postgres::PostgresStore;
pub use sqlx::PgPool;
