//! The store: that of `idmill-sqlx08`, beside SeaORM's pool.

use std::fmt;

use idmill::store::Store;
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_sqlx::driver::PgPool;
use idmill_sqlx::postgres::{PostgresOptions, PostgresStore as Inner};
use sea_orm::{ConnectionTrait, DatabaseConnection, DbBackend};

/// Sequences in a table of the database that a [`DatabaseConnection`] leads to.
///
/// The store opens connections of its own, at most four, and four more while locks are waited for: as
/// SeaORM's pool would, with its options and its search path. So a refill never waits for a connection that
/// callers hold while they wait for that refill. They stay when the pool is closed, and end with the last
/// clone of the store. See [`PostgresOptions::share_pool`] for the other way.
#[derive(Clone)]
pub struct PostgresStore(Inner);

impl PostgresStore {
    /// Beside this connection, in the table `idmill_sequences` that the `search_path` leads to, or else of
    /// its first schema, where it is created.
    ///
    /// # Errors
    /// Those of [`with_options`](Self::with_options).
    pub async fn from_connection(connection: &DatabaseConnection) -> Result<Self> {
        Self::with_options(connection, PostgresOptions::new()).await
    }

    /// Beside this connection, with these options. Creates the table where they say so; dropping the future
    /// can leave it created.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that cannot be, and for a connection that is
    /// none to PostgreSQL; [`Unavailable`](ErrorKind::Unavailable) if the server cannot be reached;
    /// [`Denied`](ErrorKind::Denied) by the server, or for its certificate; [`NotFound`](ErrorKind::NotFound)
    /// if the database is missing, the schema, or the table and it is not to be created;
    /// [`Conflict`](ErrorKind::Conflict) if the table is unlogged or not idmill's, if two are to be seen, or
    /// the server does not sync what it writes.
    pub async fn with_options(connection: &DatabaseConnection, options: PostgresOptions) -> Result<Self> {
        let pool = pool(connection).map_err(|error| error.during(Operation::Connect))?;
        Inner::with_options(pool, options).await.map(Self)
    }
}

/// SeaORM panics where it has another pool, or none.
fn pool(connection: &DatabaseConnection) -> Result<&PgPool> {
    match connection {
        DatabaseConnection::SqlxPostgresPoolConnection(_) => Ok(connection.get_postgres_connection_pool()),
        DatabaseConnection::Disconnected => Err(Error::new(
            ErrorKind::InvalidInput,
            "the connection is `DatabaseConnection::Disconnected`, which leads nowhere: make one with `Database::connect`",
        )),
        other => Err(elsewhere("connection", other.get_database_backend())),
    }
}

/// What is there instead, and what to do.
pub(super) fn elsewhere(what: &str, backend: DbBackend) -> Error {
    let is = match backend {
        DbBackend::MySql => "of MySQL: idmill-mysql has a store with connections of its own",
        DbBackend::Sqlite => "of SQLite: `idmill_sqlx::sqlite` of idmill-sqlx08 has a store for its pool",
        DbBackend::Postgres => "a mock or a proxy of PostgreSQL, which has no pool",
    };
    let message = format!(
        "PostgreSQL was expected, and the {what} is {is}; tests without a database use `idmill::store::MemoryStore`"
    );
    Error::new(ErrorKind::InvalidInput, message)
}

impl Store for PostgresStore {
    idmill::store_calls!(|this| this.0 =>
        capabilities reserve reserve_many give_back create inspect inspect_many list set remove
        server record swap_record list_records);
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
