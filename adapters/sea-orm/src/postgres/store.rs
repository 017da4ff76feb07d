//! The store of `idmill-sqlx08` or `idmill-sqlx`, over SeaORM's pool.

use std::fmt;

use idmill::store::Store;
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_sqlx::driver::PgPool;
use idmill_sqlx::postgres::{PostgresOptions, PostgresStore as Inner};
use sea_orm::{ConnectionTrait, DatabaseConnection, DbBackend};

use crate::version::postgres::{Kind, kind};

/// Sequences in a table of the database that a [`DatabaseConnection`] connects to.
///
/// The store opens its own connections: at most four, plus four that wait for locks. It uses the options and
/// the search path of SeaORM's pool. Because the connections are its own, a refill never waits for a
/// connection that callers hold while they wait for that refill. The connections stay open when the pool is
/// closed, and are closed with the last clone of the store, unless [`PostgresOptions::close_with_pool`] is
/// set. To use the pool's connections instead, see [`PostgresOptions::share_pool`].
#[derive(Clone)]
pub struct PostgresStore(Inner);

impl PostgresStore {
    /// Opens a store for this connection's database. The table is `idmill_sequences` on the
    /// `search_path`; if there is none, it is created in the first schema of the path.
    ///
    /// # Errors
    /// The errors of [`with_options`](Self::with_options).
    pub async fn from_connection(connection: &DatabaseConnection) -> Result<Self> {
        Self::with_options(connection, PostgresOptions::new()).await
    }

    /// Opens a store for this connection's database with these options, and creates the table if
    /// they allow it. If the future is dropped, the table may have been created.
    ///
    /// # Errors
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if an option is invalid, or the connection is
    ///   not to PostgreSQL;
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server is unreachable;
    /// - [`Denied`](ErrorKind::Denied) if the server refuses access, or its certificate is not
    ///   accepted;
    /// - [`NotFound`](ErrorKind::NotFound) if the database or the schema is missing, or if the
    ///   table is missing and the mode does not create it;
    /// - [`Conflict`](ErrorKind::Conflict) if the table is unlogged or not idmill's, if the `search_path` has
    ///   two tables, or if the server does not sync its writes;
    /// - [`Unsupported`](ErrorKind::Unsupported) if the server does not report the history that the
    ///   `failover` option needs, or lacks required TLS.
    pub async fn with_options(connection: &DatabaseConnection, options: PostgresOptions) -> Result<Self> {
        let pool = pool(connection).map_err(|error| error.during(Operation::Connect))?;
        Inner::with_options(pool, options).await.map(Self)
    }
}

/// Checks the kind of the connection first: SeaORM panics if it has no PostgreSQL pool.
fn pool(connection: &DatabaseConnection) -> Result<&PgPool> {
    match kind(connection) {
        Kind::SqlxPostgresPoolConnection(_) => Ok(connection.get_postgres_connection_pool()),
        Kind::Disconnected => Err(Error::new(
            ErrorKind::InvalidInput,
            "the connection is `DatabaseConnection::Disconnected`; make one with `Database::connect`",
        )),
        #[allow(unreachable_patterns, reason = "other kinds exist only with features of the service")]
        _ => Err(elsewhere("connection", ConnectionTrait::get_database_backend(connection))),
    }
}

/// The error for another kind of connection, with advice.
#[allow(clippy::match_wildcard_for_single_variants, reason = "in SeaORM 2, the enum is `non_exhaustive`")]
pub(super) fn elsewhere(what: &str, backend: DbBackend) -> Error {
    let is = match backend {
        DbBackend::MySql => "for MySQL (use `idmill-mysql`)",
        DbBackend::Sqlite => "for SQLite (use `idmill_sqlx::sqlite`)",
        _ => "a mock or a proxy, and has no pool",
    };
    let message = format!(
        "expected PostgreSQL, but the {what} is {is}; for tests, use \
         `MemoryStore`"
    );
    Error::new(ErrorKind::InvalidInput, message)
}

impl Store for PostgresStore {
    idmill::store_calls!(|this| this.0 =>
        capabilities reserve reserve_many give_back give_back_many create inspect inspect_many list set remove
        server record swap_record list_records);
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
