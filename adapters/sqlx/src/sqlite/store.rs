//! The store: its own single connection, which is reopened if it was lost.

use std::sync::Arc;
use std::time::Duration;

use idmill::{Operation, Result};
use idmill_kit::Mode;
use idmill_sql::sqlite::{Calls, Files, Session, Table, failed, passes};
use idmill_sql::{Asked, Fault};
use sqlx::{ConnectOptions, SqlitePool};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep};

use super::executor::{Own, fault};
use super::options::SqliteOptions;

/// The pause between two tries to open a database that others hold.
const AGAIN: Duration = Duration::from_millis(10);

/// Sequences in a table of the database that a [`SqlitePool`] connects to.
///
/// The store opens its own single connection with the pool's connect options; `after_connect` is
/// not run. On that connection `synchronous` is EXTRA, and commits survive a crash, whatever the
/// settings of the pool's connections are. The connection stays open when the pool is closed, and
/// is closed with the last clone of the store.
#[derive(Clone)]
pub struct SqliteStore {
    pool: SqlitePool,
    options: SqliteOptions,
    table: Table,
    files: Files,
    /// `None` while the session is in use, and after a failure or a dropped call: the next call opens another
    /// session.
    session: Arc<Mutex<Option<Session<Own>>>>,
    calls: Calls,
}

idmill_sql::store! { batches SqliteStore, session: |store, _| store.take().await?, |held| &mut held.session, held.put_back() }

/// The session in use, which closes if it is dropped without being returned.
struct Taken {
    session: Session<Own>,
    place: OwnedMutexGuard<Option<Session<Own>>>,
}

impl SqliteStore {
    /// Opens a store for this pool's database, with the table `idmill_sequences`, which is created
    /// if it is missing.
    ///
    /// # Errors
    /// The errors of [`with_options`](Self::with_options).
    pub async fn from_pool(pool: &SqlitePool) -> Result<Self> {
        Self::with_options(pool, SqliteOptions::new()).await
    }

    /// Opens a store for this pool's database with these options, and creates the table if they
    /// allow it. If the future is dropped, the table may have been created.
    ///
    /// # Errors
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid, or the database
    ///   is in memory;
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if the file or the table is missing and may not
    ///   be created;
    /// - [`Denied`](idmill::ErrorKind::Denied) if permissions forbid access to the file or its directory;
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if the file stays locked;
    /// - [`StoreViolation`](idmill::ErrorKind::StoreViolation) if the file is not a database or is
    ///   corrupt;
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the table exists but is not idmill's, or the file has
    ///   several names or is mounted;
    /// - [`Unsupported`](idmill::ErrorKind::Unsupported) if commits would not be durable.
    pub async fn with_options(pool: &SqlitePool, options: SqliteOptions) -> Result<Self> {
        Self::open(pool, options).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn open(pool: &SqlitePool, options: SqliteOptions) -> Result<Self> {
        let (table, deadline) = (options.check()?, Instant::now() + options.busy_timeout);
        let session = loop {
            match adopt(pool, &options, &table).await {
                Err(error) if passes(&error) && Instant::now() < deadline => sleep(AGAIN).await,
                outcome => break outcome?,
            }
        };
        let (calls, files) = (Calls(options.mode), session.files().clone());
        let (pool, session) = (pool.clone(), Arc::new(Mutex::new(Some(session))));
        Ok(Self { pool, options, table, files, session, calls })
    }

    /// Opens another connection to the same file. If no other connection was open, SQLite has removed the
    /// write-ahead log, and creates another one. A missing file is not recreated: its sequences would begin
    /// again.
    async fn again(&self) -> Result<Session<Own>> {
        let mode = self.options.mode.existing();
        let own = connect(&self.pool, &self.options, mode).await;
        let own = own.map_err(|fault| failed(fault, Asked::Connect))?;
        Session::adopt_again(own, self.table.clone(), mode, &self.files).await
    }

    async fn take(&self) -> Result<Taken> {
        let mut place = self.session.clone().lock_owned().await;
        let session = match place.take() {
            Some(session) => session,
            None => self.again().await?,
        };
        Ok(Taken { session, place })
    }
}

impl Taken {
    /// Closes the connection if its transaction could not be rolled back.
    fn put_back(mut self) {
        if self.session.is_idle() {
            *self.place = Some(self.session);
        }
    }
}

async fn adopt(pool: &SqlitePool, options: &SqliteOptions, table: &Table) -> Result<Session<Own>> {
    let own = connect(pool, options, options.mode).await.map_err(|fault| failed(fault, Asked::Connect))?;
    Session::adopt(own, table.clone(), options.mode).await
}

async fn connect(pool: &SqlitePool, options: &SqliteOptions, mode: Mode) -> Result<Own, Fault> {
    let connecting = (*pool.connect_options()).clone().busy_timeout(options.busy_timeout);
    let connecting = match mode {
        Mode::Create => connecting,
        Mode::ReadOnly => connecting.create_if_missing(false).read_only(true),
        _ => connecting.create_if_missing(false),
    };
    connecting.connect().await.map(Own).map_err(fault)
}
