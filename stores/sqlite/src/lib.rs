//! Ids from SQLite: small, unique, ordered, in ranges or inside your transactions.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-sqlite).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`SqliteStore`] keeps sequences in an SQLite database. [`SqliteOptions`] describes its URL.
//!
//! # What holds
//!
//! - **Durable**: opening a database fails if its `synchronous` setting does not read back as EXTRA. The
//!   journal modes OFF and MEMORY belong to a connection, not to a file; this store's connection never uses
//!   them.
//! - **Shared**: any number of processes, and of stores within one process, can use one file. They can all
//!   create it at the same time.
//! - **Gapless**, on request: see [`InTransaction`].
//!
//! # Cancellation
//!
//! The work runs on a thread of tokio's blocking pool. A call that is dropped while it waits for its turn
//! does nothing. A call that has begun runs until it commits, and the range it reserved becomes a gap. In
//! both cases the file stays intact.

mod database;
mod executor;
mod options;
#[cfg(test)]
mod table_tests;
mod transaction;

use std::path::Path;
use std::sync::Arc;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Listing, Page, Records, Reserve, SequenceInfo, Store,
    StoreFuture,
};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName};
use idmill_kit::Scheme;
use idmill_sql::sqlite::{Calls, Session};
use idmill_sql::{Dialect, Witnesses, at_once, each_of};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinError;

use self::database::Database;
use self::executor::Own;

pub use self::options::SqliteOptions;
pub use self::transaction::{InTransaction, next_in, reserve_in};
pub use idmill;
pub use idmill_kit::Mode;
/// The driver, in the version whose transactions [`reserve_in`] takes.
pub use rusqlite;

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[Scheme::store::<SqliteOptions>("sqlite", "sqlite:PATH")];

/// Opens the store at a URL such as `sqlite:PATH`, and its sequences, on the current tokio runtime.
///
/// # Errors
/// Those of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<SqliteOptions>(url).await
}

/// Sequences in a table of an SQLite database. See the [crate docs](self) for its guarantees.
///
/// Clones share one connection.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    // Of tokio's kind, so that calls await their turn; the blocking pool holds one thread per store at most.
    database: Arc<Mutex<Database>>,
    calls: Calls,
}

impl SqliteStore {
    /// Opens the database at this path, creating it if it does not exist.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(SqliteOptions::new(path.as_ref())).await
    }

    /// Opens a database. If the future is dropped, the file may already have been created.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if an option is invalid; [`NotFound`](ErrorKind::NotFound)
    /// if the directory is missing, or if the file or the table is missing and the mode does not create it;
    /// [`Denied`](ErrorKind::Denied); [`Unavailable`](ErrorKind::Unavailable) if others hold the database for
    /// the whole busy timeout; [`StoreViolation`](ErrorKind::StoreViolation) if the file is corrupt or not a
    /// database; [`Conflict`](ErrorKind::Conflict) if the table exists but is not this crate's, or the file
    /// has several names; [`Unsupported`](ErrorKind::Unsupported) if commits would not be durable, or outside
    /// a tokio runtime.
    pub async fn open_with(options: SqliteOptions) -> Result<Self> {
        Self::try_open(options).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn try_open(options: SqliteOptions) -> Result<Self> {
        let settings = options.checked()?;
        let calls = Calls(settings.mode);
        let opening = runtime()?.spawn_blocking(move || Database::open(settings)).await;
        let database = opening.map_err(|error| died(ErrorKind::Unavailable, error))??;
        Ok(Self { database: Arc::new(Mutex::new(database)), calls })
    }

    /// A call that asks for nothing, so that nothing is unknown.
    async fn read<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Session<Own>, Calls) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.run(job).await?.map_err(|error| died(ErrorKind::Unavailable, error))?
    }

    async fn write<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Session<Own>, Calls) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.run(job).await?.map_err(|error| died(ErrorKind::UnknownOutcome, error))?
    }

    async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Session<Own>, Calls) -> Result<R> + Send + 'static,
    ) -> Result<Result<Result<R>, JoinError>> {
        let runtime = runtime()?;
        // Moves into the job: a call that is dropped does not let another at the
        // connection before the job ends.
        let mut database = Arc::clone(&self.database).lock_owned().await;
        let calls = self.calls;
        Ok(runtime.spawn_blocking(move || database.run(|session| job(session, calls))).await)
    }

    async fn try_reserve_many(&self, requests: &[Reserve]) -> Result<Vec<Result<Grant>>> {
        let requests = requests.to_vec();
        self.write(move |session, calls| at_once(calls.reserve_many(session, &requests))).await
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let back = back.clone();
        self.write(move |session, calls| at_once(calls.give_back(session, &back))).await
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let name = name.clone();
        self.write(move |session, calls| at_once(calls.create(session, &name, bounds))).await
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let name = name.clone();
        self.read(move |session, calls| at_once(calls.inspect(session, &name))).await
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let page = page.clone();
        self.read(move |session, calls| at_once(calls.list(session, &page))).await
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let name = name.clone();
        self.write(move |session, calls| at_once(calls.set(session, &name, change))).await
    }

    async fn try_remove(&self, name: &SequenceName) -> Result<bool> {
        let name = name.clone();
        self.write(move |session, calls| at_once(calls.remove(session, &name))).await
    }

    async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let name = name.clone();
        self.read(move |session, calls| at_once(calls.record(session, &name))).await
    }

    async fn try_swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        let (name, seen, wanted) = (name.clone(), seen.map(str::to_owned), wanted.to_owned());
        self.write(move |session, calls| at_once(calls.swap_record(session, &name, seen.as_deref(), &wanted)))
            .await
    }

    async fn try_list_records(&self, page: &Page) -> Result<Records> {
        let page = page.clone();
        self.read(move |session, calls| at_once(calls.list_records(session, &page))).await
    }
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        <Calls as Dialect<Session<Own>>>::CAPABILITIES
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let mut grants = self.reserve_many(std::slice::from_ref(request)).await;
            grants.pop().expect("one outcome for each request")
        })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move { each_of(requests, self.try_reserve_many(requests).await) })
    }

    idmill::store_calls!(give_back create inspect list set remove record swap_record list_records);
}

/// Reads on a connection of its own, where it may block.
async fn look<R: Send + 'static>(job: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    runtime()?.spawn_blocking(job).await.map_err(|error| died(ErrorKind::Unavailable, error))?
}

fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::Unsupported, "SQLite is used from within a tokio runtime; there is none here")
            .because(error)
    })
}

/// The thread that did the work panicked, or the runtime was shut down.
fn died(kind: ErrorKind, error: JoinError) -> Error {
    Error::new(kind, format!("the thread that used the database ended early: {error}")).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_whose_thread_died_is_unknown_and_the_store_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("ids.db")).await.unwrap();
        let error = store.write(|_, _| -> Result<()> { panic!("injected") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        let error = store.read(|_, _| -> Result<()> { panic!("injected") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(store.list_all().await.unwrap(), []);
    }

    #[test]
    fn without_a_runtime_it_says_so() {
        let opening = SqliteStore::open("ids.db");
        let error = futures_util::FutureExt::now_or_never(opening).expect("ready at once").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
