//! Sequences in an SQLite database: `sqlite:PATH?table=NAME&busy_timeout=5s&mode=ro|rw|rwc`.
//!
//! # What holds
//!
//! - **Durable**: a range is on the disk before an id of it is handed out. A file that is created here has a
//!   write-ahead log; a database that exists keeps its journal mode. In either, `synchronous` is EXTRA
//!   (and on macOS `fullfsync` is on) for this store's connection, which is read back, and the database
//!   refused if it is otherwise. `journal_mode` OFF and MEMORY are settings of a connection and not of a
//!   file: this one never has them.
//! - **Shared**: any number of processes, and of stores within one, may use one file, and may all create it
//!   at the same time. A process can be killed at any moment.
//! - **Kept apart**: a file that is deleted, moved or replaced while it is in use is noticed (on Unix), and
//!   nothing more is reserved from it. The same holds for its write-ahead log. A file with several names is
//!   refused, and one that is mounted by itself: under each name SQLite would write another log.
//! - **Gapless**, where it is asked for: see [`InTransaction`].
//!
//! What SQLite cannot protect from: a network file system without locks, a copy made of a file in use,
//! and another program that writes to the same database with `synchronous=OFF` or `journal_mode=OFF`, or
//! opens and closes the file by itself within this process. Do not carry a store across `fork`.
//!
//! # Cancellation
//!
//! The work is done on a thread of tokio's blocking pool. A call that is dropped while it waits for
//! its turn does nothing; one that has begun goes on to its commit: the range it reserved is a gap.
//! Either way the file is whole.

mod classify;
mod database;
mod file;
mod options;
mod schema;
mod transaction;

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinError;

use self::classify::failed;
use self::database::Database;
use self::schema::Table;
use super::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Listing, Page, Reserve, RetryCost,
    SequenceInfo, Store, StoreFuture, already_exists, not_found,
};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;

pub use self::options::SqliteOptions;
pub use self::transaction::{InTransaction, next_in, reserve_in};
pub use super::Mode;
/// The driver, in the version whose transactions [`reserve_in`] takes.
pub use rusqlite;

/// Sequences in a table of an SQLite database. See the [module](self) for what holds.
///
/// Clones share one connection.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    // Of tokio's kind, so that calls await their turn; the blocking pool holds one thread per store at most.
    database: Arc<Mutex<Database>>,
    table: Table,
}

impl SqliteStore {
    /// Opens the database at this path, creating it if it does not exist.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(SqliteOptions::new(path.as_ref())).await
    }

    /// Opens a database. Dropping the future can leave the file created.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that cannot be;
    /// [`NotFound`](ErrorKind::NotFound) if the directory is missing, or the file or the table and they are
    /// not to be created; [`Denied`](ErrorKind::Denied); [`Unavailable`](ErrorKind::Unavailable) if others
    /// held it for all of the busy timeout; [`StoreViolation`](ErrorKind::StoreViolation) if the file is no
    /// database or corrupt; [`Conflict`](ErrorKind::Conflict) if the table is there but not this crate's,
    /// or the file has several names; [`Unsupported`](ErrorKind::Unsupported) if commits would not be
    /// durable, or outside a tokio runtime.
    pub async fn open_with(options: SqliteOptions) -> Result<Self> {
        Self::try_open(options).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn try_open(options: SqliteOptions) -> Result<Self> {
        let checked = options.check()?;
        let table = checked.table.clone();
        let opening = runtime()?.spawn_blocking(move || Database::open(checked)).await;
        let database = opening.map_err(|error| died(ErrorKind::Unavailable, error))??;
        Ok(Self { database: Arc::new(Mutex::new(database)), table })
    }

    async fn read<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Database) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        // Nothing was asked for, so nothing is unknown.
        self.run(job).await?.map_err(|error| died(ErrorKind::Unavailable, error))?
    }

    async fn write<R: Send + 'static>(
        &self,
        job: impl FnOnce(&rusqlite::Connection) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let outcome = self.run(move |database| database.write(job)).await?;
        outcome.map_err(|error| died(ErrorKind::UnknownOutcome, error))?
    }

    async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Database) -> R + Send + 'static,
    ) -> Result<Result<R, JoinError>> {
        let runtime = runtime()?;
        // Moves into the job: a call that is dropped does not let another at the
        // connection before the job ends.
        let mut database = Arc::clone(&self.database).lock_owned().await;
        Ok(runtime.spawn_blocking(move || job(&mut database)).await)
    }

    async fn reserve_all(&self, requests: Vec<Reserve>) -> Result<Vec<Result<Grant>>> {
        let table = self.table.clone();
        let job = move |db: &rusqlite::Connection| {
            let grants = requests.iter().map(|request| table.reserve(db, request));
            grants.collect::<classify::Sql<Vec<_>>>().map_err(failed)
        };
        self.write(job).await
    }
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::Disk,
            retry: RetryCost::Gap,
            batches: true,
            shared: true,
            gives_back: true,
        }
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let mut grants = self.reserve_many(std::slice::from_ref(request)).await;
            grants.pop().expect("one outcome for each request")
        })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let outcomes = match self.reserve_all(requests.to_vec()).await {
                Ok(outcomes) => outcomes,
                Err(error) => vec![Err(error); requests.len()],
            };
            let named = |(outcome, request): (Result<Grant>, &Reserve)| {
                outcome.map_err(|error| error.of(&request.name).during(Operation::Reserve))
            };
            outcomes.into_iter().zip(requests).map(named).collect()
        })
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        let (table, owned) = (self.table.clone(), back.clone());
        let job = move |db: &rusqlite::Connection| {
            let Some(mut info) = table.read(db, &owned.name).map_err(failed)?? else { return Ok(false) };
            let taken = info.take_back(&owned);
            if taken {
                table.update(db, &info).map_err(failed)?;
            }
            Ok(taken)
        };
        Box::pin(async move {
            self.write(job).await.map_err(|error| error.of(&back.name).during(Operation::GiveBack))
        })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        let (table, wanted) = (self.table.clone(), name.clone());
        let job = move |db: &rusqlite::Connection| {
            if table.read(db, &wanted).map_err(failed)??.is_some() {
                return Err(already_exists(&wanted));
            }
            let info = schema::fresh(&wanted, bounds);
            table.insert(db, &info).map_err(failed)?;
            Ok(info)
        };
        Box::pin(
            async move { self.write(job).await.map_err(|error| error.of(name).during(Operation::Create)) },
        )
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        let (table, wanted) = (self.table.clone(), name.clone());
        let job =
            move |database: &mut Database| database.read(|db| table.read(db, &wanted).map_err(failed)?);
        Box::pin(
            async move { self.read(job).await.map_err(|error| error.of(name).during(Operation::Inspect)) },
        )
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        let (table, page) = (self.table.clone(), page.clone());
        let job = move |database: &mut Database| database.read(|db| table.read_page(db, &page));
        Box::pin(async move { self.read(job).await.map_err(|error| error.during(Operation::List)) })
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        let (table, wanted) = (self.table.clone(), name.clone());
        let job = move |db: &rusqlite::Connection| {
            let stored = table.read(db, &wanted).map_err(failed)??;
            let mut info = stored.ok_or_else(|| not_found(&wanted))?;
            info.apply(&change)?;
            table.update(db, &info).map_err(failed)?;
            Ok(info)
        };
        Box::pin(async move { self.write(job).await.map_err(|error| error.of(name).during(Operation::Set)) })
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        let (table, wanted) = (self.table.clone(), name.clone());
        let job = move |db: &rusqlite::Connection| table.delete(db, &wanted).map_err(failed);
        Box::pin(
            async move { self.write(job).await.map_err(|error| error.of(name).during(Operation::Remove)) },
        )
    }
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
        let error = store.write(|_| -> Result<()> { panic!("injected") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        let error = store.read(|_| -> Result<()> { panic!("injected") }).await.unwrap_err();
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
