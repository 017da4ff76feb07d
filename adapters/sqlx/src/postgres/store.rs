//! The store.

use idmill::{Operation, Result};
use idmill_sql::postgres::Calls;
use sqlx::PgPool;

use super::options::PostgresOptions;
use super::sessions::{Sessions, sessions};

/// Sequences in a table of the database that a [`PgPool`] connects to.
///
/// The store opens its own connections: at most four, plus four that wait for locks. It uses the pool's
/// connect options and `after_connect`. Because the connections are its own, a refill never waits for a
/// connection that callers hold while they wait for that refill. The connections stay open when the pool is
/// closed, and are closed with the last clone of the store, unless [`PostgresOptions::close_with_pool`] is
/// set. To use the pool's connections instead, see [`PostgresOptions::share_pool`].
#[derive(Clone)]
pub struct PostgresStore {
    sessions: Sessions,
    calls: Calls,
}

idmill_sql::store! { batches PostgresStore, session: |store, _| store.sessions.clone(), |session| &mut session, drop(session) }

impl PostgresStore {
    /// Opens a store for this pool's database. The table is `idmill_sequences` on the
    /// `search_path`; if there is none, it is created in the first schema of the path.
    ///
    /// # Errors
    /// The errors of [`with_options`](Self::with_options).
    pub async fn from_pool(pool: &PgPool) -> Result<Self> {
        Self::with_options(pool, PostgresOptions::new()).await
    }

    /// Opens a store for this pool's database with these options, and creates the table if they
    /// allow it. If the future is dropped, the table may have been created.
    ///
    /// # Errors
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid;
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if the server is unreachable;
    /// - [`Denied`](idmill::ErrorKind::Denied) if the server refuses access, or its certificate is
    ///   not accepted;
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if the database or the schema is missing, or if
    ///   the table is missing and the mode does not create it;
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the table is unlogged or not idmill's, if the
    ///   `search_path` has two tables, or if the server does not sync its writes;
    /// - [`Unsupported`](idmill::ErrorKind::Unsupported) if the server does not report the history that the
    ///   `failover` option needs, or lacks required TLS.
    pub async fn with_options(pool: &PgPool, options: PostgresOptions) -> Result<Self> {
        Self::open(pool, &options).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn open(pool: &PgPool, options: &PostgresOptions) -> Result<Self> {
        let table = options.check()?;
        let sessions = sessions(pool, options);
        let calls = Calls::open(&mut sessions.clone(), table, options.opening()).await?;
        Ok(Self { sessions, calls })
    }
}
