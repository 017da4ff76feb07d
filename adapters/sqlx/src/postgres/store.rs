//! The store.

use idmill::store::Store;
use idmill::{Operation, Result};
use idmill_sql::SqlStore;
use idmill_sql::postgres::Calls;
use sqlx::PgPool;

use super::options::PostgresOptions;
use super::sessions::{Sessions, sessions};

/// Sequences in a table of the database that a [`PgPool`] leads to.
///
/// The store opens connections of its own, at most four, and four more while locks are waited for: as the
/// pool would, with its connect options and its `after_connect`. So a refill never waits for a connection
/// that callers hold while they wait for that refill. They stay when the pool is closed, and end with the
/// last clone of the store, unless [`PostgresOptions::close_with_pool`] says otherwise. See
/// [`PostgresOptions::share_pool`] for the other way.
#[derive(Clone, Debug)]
pub struct PostgresStore(SqlStore<Sessions, Calls>);

impl PostgresStore {
    /// Beside this pool, in the table `idmill_sequences` that the `search_path` leads to, or else of its
    /// first schema, where it is created.
    ///
    /// # Errors
    /// Those of [`with_options`](Self::with_options).
    pub async fn from_pool(pool: &PgPool) -> Result<Self> {
        Self::with_options(pool, PostgresOptions::new()).await
    }

    /// Beside this pool, with these options. Creates the table where they say so; dropping the future can
    /// leave it created.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for options that cannot be;
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if the server cannot be reached;
    /// [`Denied`](idmill::ErrorKind::Denied) by the server, or for its certificate;
    /// [`NotFound`](idmill::ErrorKind::NotFound) if the database is missing, the schema, or the table and it
    /// is not to be created; [`Conflict`](idmill::ErrorKind::Conflict) if the table is unlogged or not
    /// idmill's, if two are to be seen, or the server does not sync what it writes;
    /// [`Unsupported`](idmill::ErrorKind::Unsupported) if it does not tell what the `failover` that the
    /// options ask for needs.
    pub async fn with_options(pool: &PgPool, options: PostgresOptions) -> Result<Self> {
        Self::open(pool, &options).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn open(pool: &PgPool, options: &PostgresOptions) -> Result<Self> {
        let table = options.check()?;
        let sessions = sessions(pool, options);
        let calls =
            Calls::open(&mut sessions.clone(), table, options.mode, options.keeps, options.failover).await?;
        Ok(Self(SqlStore::new(sessions, calls)))
    }
}

impl Store for PostgresStore {
    idmill::store_calls!(|this| this.0 =>
        capabilities reserve reserve_many give_back create inspect list set remove
        server record swap_record list_records);
}
