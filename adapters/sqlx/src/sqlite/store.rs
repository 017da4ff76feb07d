//! The store: one connection of its own, opened again where it was lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Listing, Page, Records, Reserve, SequenceInfo, Store,
    StoreFuture,
};
use idmill::{Operation, Result, SequenceName};
use idmill_kit::Mode;
use idmill_sql::sqlite::{CAPABILITIES, Files, Session, Table, failed, passes};
use idmill_sql::{Asked, Fault};
use sqlx::{ConnectOptions, SqlitePool};
use tokio::sync::{Mutex, MutexGuard};
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
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    pool: SqlitePool,
    options: SqliteOptions,
    table: Table,
    files: Files,
    /// None while it is in use, and after a failure or a call that was dropped: the next opens another.
    session: Mutex<Option<Session<Own>>>,
}

/// The session, in use. Dropped as it is, it closes.
struct Taken<'a> {
    session: Session<Own>,
    place: MutexGuard<'a, Option<Session<Own>>>,
}

impl SqliteStore {
    /// Beside this pool, in the table `idmill_sequences`, created where it is missing.
    ///
    /// # Errors
    /// Those of [`with`](Self::with).
    pub async fn from_pool(pool: &SqlitePool) -> Result<Self> {
        Self::with(pool, SqliteOptions::new()).await
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
    pub async fn with(pool: &SqlitePool, options: SqliteOptions) -> Result<Self> {
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
        let (pool, files) = (pool.clone(), session.files().clone());
        Ok(Self(Arc::new(Inner { pool, options, table, files, session: Mutex::new(Some(session)) })))
    }

    async fn take(&self) -> Result<Taken<'_>> {
        let mut place = self.0.session.lock().await;
        let kept = place.take();
        let session = if let Some(session) = kept { session } else { self.again().await? };
        Ok(Taken { session, place })
    }

    /// Another connection to the same file, which may be the only one. A file that is gone is not made anew:
    /// it would begin again.
    async fn again(&self) -> Result<Session<Own>> {
        let mode = self.0.options.mode.existing();
        let own = connect(&self.0.pool, &self.0.options, mode).await;
        let own = own.map_err(|fault| failed(fault, Asked::Connect))?;
        Session::adopt_again(own, self.0.table.clone(), mode, &self.0.files).await
    }

    async fn try_reserve_many(&self, requests: &[Reserve]) -> Result<Vec<Result<Grant>>> {
        let mut taken = self.take().await?;
        let outcome = taken.session.reserve_many(requests).await;
        taken.put_back(outcome)
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let mut taken = self.take().await?;
        let outcome = taken.session.give_back(back).await;
        taken.put_back(outcome)
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let mut taken = self.take().await?;
        let outcome = taken.session.create(name, bounds).await;
        taken.put_back(outcome)
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let mut taken = self.take().await?;
        let outcome = taken.session.inspect(name).await;
        taken.put_back(outcome)
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let mut taken = self.take().await?;
        let outcome = taken.session.list(page).await;
        taken.put_back(outcome)
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let mut taken = self.take().await?;
        let outcome = taken.session.set(name, &change).await;
        taken.put_back(outcome)
    }

    async fn try_remove(&self, name: &SequenceName) -> Result<bool> {
        let mut taken = self.take().await?;
        let outcome = taken.session.remove(name).await;
        taken.put_back(outcome)
    }

    async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let mut taken = self.take().await?;
        let outcome = taken.session.record(name).await;
        taken.put_back(outcome)
    }

    async fn try_swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        let mut taken = self.take().await?;
        let outcome = taken.session.swap_record(name, seen, wanted, self.0.options.mode).await;
        taken.put_back(outcome)
    }

    async fn try_list_records(&self, page: &Page) -> Result<Records> {
        let mut taken = self.take().await?;
        let outcome = taken.session.list_records(page).await;
        taken.put_back(outcome)
    }
}

impl Taken<'_> {
    /// A transaction that could not be rolled back ends with its connection.
    fn put_back<R>(mut self, outcome: R) -> R {
        if self.session.is_idle() {
            *self.place = Some(self.session);
        }
        outcome
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
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let mut grants = self.reserve_many(std::slice::from_ref(request)).await;
            grants.pop().expect("one outcome for each request")
        })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let outcomes = match self.try_reserve_many(requests).await {
                Ok(outcomes) => outcomes,
                Err(error) => vec![Err(error); requests.len()],
            };
            let named = |(outcome, request): (Result<Grant>, &Reserve)| {
                outcome.map_err(|error| error.of(&request.name).during(Operation::Reserve))
            };
            outcomes.into_iter().zip(requests).map(named).collect()
        })
    }

    idmill::store_calls!(give_back create inspect list set remove record swap_record list_records);
}

/// Not the pool, whose options may hold a key.
impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("table", &self.0.table.name()).finish_non_exhaustive()
    }
}
