//! The store: one connection of its own, opened again where it was lost.

use std::borrow::{Borrow, BorrowMut};
use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill::{Operation, Result};
use idmill_kit::Mode;
use idmill_sql::sqlite::{Calls, Files, Session, Table, failed, passes};
use idmill_sql::{Asked, Fault, Pool, SqlStore};
use sqlx::{ConnectOptions, SqlitePool};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep};

use super::executor::{Own, fault};
use super::options::SqliteOptions;

/// Between two tries to open a database that others hold.
const AGAIN: Duration = Duration::from_millis(10);

/// Sequences in a table of the database that a [`SqlitePool`] leads to.
///
/// The store opens one connection of its own, with the pool's connect options; its `after_connect` is not
/// run. On that connection `synchronous` is EXTRA, and commits survive a crash, whatever the pool's
/// connections are set to. It stays when the pool is closed, and ends with the last clone of the store.
#[derive(Clone, Debug)]
pub struct SqliteStore(SqlStore<Connection, Calls>);

/// The connection of a store. Clones share it.
#[derive(Clone)]
struct Connection {
    pool: SqlitePool,
    options: SqliteOptions,
    table: Table,
    files: Files,
    /// None while it is in use, and after a failure or a call that was dropped: the next opens another.
    session: Arc<Mutex<Option<Session<Own>>>>,
}

/// The session, in use. Dropped as it is, it closes.
struct Taken {
    session: Session<Own>,
    place: OwnedMutexGuard<Option<Session<Own>>>,
}

impl SqliteStore {
    /// Beside this pool, in the table `idmill_sequences`, created where it is missing.
    ///
    /// # Errors
    /// Those of [`with_options`](Self::with_options).
    pub async fn from_pool(pool: &SqlitePool) -> Result<Self> {
        Self::with_options(pool, SqliteOptions::new()).await
    }

    /// Beside this pool, with these options. Creates the table where they say so; dropping the future can
    /// leave it created.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for options that cannot be, or a database in memory;
    /// [`NotFound`](idmill::ErrorKind::NotFound) if the file or the table is missing and not to be created;
    /// [`Denied`](idmill::ErrorKind::Denied); [`Unavailable`](idmill::ErrorKind::Unavailable) if others hold
    /// it; [`StoreViolation`](idmill::ErrorKind::StoreViolation) if the file is no database or corrupt;
    /// [`Conflict`](idmill::ErrorKind::Conflict) if the table is there but not idmill's;
    /// [`Unsupported`](idmill::ErrorKind::Unsupported) if commits would not be durable.
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
        Ok(Self(SqlStore::new(Connection { pool, options, table, files, session }, calls)))
    }
}

impl Connection {
    /// Another connection to the same file, which may be the only one. A file that is gone is not made anew:
    /// it would begin again.
    async fn again(&self) -> Result<Session<Own>> {
        let mode = self.options.mode.existing();
        let own = connect(&self.pool, &self.options, mode).await;
        let own = own.map_err(|fault| failed(fault, Asked::Connect))?;
        Session::adopt_again(own, self.table.clone(), mode, &self.files).await
    }
}

impl Pool for Connection {
    type Session = Session<Own>;
    type Held = Taken;

    async fn take(&self, _: Asked) -> Result<Taken> {
        let mut place = self.session.clone().lock_owned().await;
        let session = match place.take() {
            Some(session) => session,
            None => self.again().await?,
        };
        Ok(Taken { session, place })
    }

    /// A transaction that could not be rolled back ends with its connection.
    async fn put_back(&self, mut taken: Taken) {
        if taken.session.is_idle() {
            *taken.place = Some(taken.session);
        }
    }
}

impl Borrow<Session<Own>> for Taken {
    fn borrow(&self) -> &Session<Own> {
        &self.session
    }
}

impl BorrowMut<Session<Own>> for Taken {
    fn borrow_mut(&mut self) -> &mut Session<Own> {
        &mut self.session
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

impl Store for SqliteStore {
    idmill::store_calls!(|this| this.0 =>
        capabilities reserve reserve_many give_back create inspect list set remove
        server record swap_record list_records);
}
