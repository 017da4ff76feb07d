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
//! # Guarantees
//!
//! - **Durable**: opening a database fails if its `synchronous` setting does not read back as EXTRA. The
//!   journal modes OFF and MEMORY, which can lose commits, apply to one connection, and this store's
//!   connection never uses them.
//! - **Shared**: any number of processes, and of stores within one process, can use one file. They can all
//!   create it at the same time.
//! - **Gapless**, on request: see [`InTransaction`].
//!
//! # Cancellation
//!
//! The work runs on a thread of tokio's blocking pool. A call that is dropped while it waits for an earlier
//! call does nothing. A call that has begun runs until it commits, and the reserved range becomes a gap. In
//! both cases the file stays intact.

mod database;
mod executor;
mod options;
mod transaction;

use std::path::Path;
use std::sync::Arc;

use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::Scheme;
use idmill_sql::Asked;
use idmill_sql::sqlite::{Calls, Session};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinError;

use self::database::Database;
use self::executor::Own;

pub use self::options::SqliteOptions;
pub use self::transaction::{InTransaction, next_in, next_in_sql, reserve_in};
pub use idmill;
pub use idmill_kit::Mode;
/// The driver, in the version whose transactions [`reserve_in`] takes.
pub use rusqlite;

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[Scheme::store::<SqliteOptions>("sqlite", "sqlite:PATH")];

/// Opens the store at a URL such as `sqlite:PATH` and returns its sequences. They run on the current tokio
/// runtime.
///
/// # Errors
/// The errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<SqliteOptions>(url).await
}

/// A store of sequences in a table of an SQLite database. See the [crate docs](self) for its guarantees.
///
/// Clones share one connection.
#[derive(Clone)]
pub struct SqliteStore {
    // A tokio mutex, so that calls await their turn and each store uses at most one thread of the
    // blocking pool.
    database: Arc<Mutex<Database>>,
    calls: Calls,
}

idmill_sql::store! { batches SqliteStore, thread }

impl SqliteStore {
    /// Opens the database at this path, creating it if it does not exist.
    ///
    /// # Errors
    /// The errors of [`open_with`](Self::open_with).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(SqliteOptions::new(path.as_ref())).await
    }

    /// Opens a database. If the future is dropped, the file may already have been created.
    ///
    /// # Errors
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if an option is invalid;
    /// - [`NotFound`](ErrorKind::NotFound) if the directory is missing, or if the file or the table
    ///   is missing and the mode does not create it;
    /// - [`Denied`](ErrorKind::Denied) if this user has no access to the file or its directory;
    /// - [`Unavailable`](ErrorKind::Unavailable) if the database stays locked for the whole busy timeout;
    /// - [`StoreViolation`](ErrorKind::StoreViolation) if the file is corrupt or not a database;
    /// - [`Conflict`](ErrorKind::Conflict) if the table exists but is not this crate's, or the file has
    ///   several names or is mounted;
    /// - [`Unsupported`](ErrorKind::Unsupported) if commits would not be durable, or outside a
    ///   tokio runtime.
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

    /// Runs a job on a thread that may block. If the thread ends early, the outcome of a write is
    /// unknown.
    async fn run<R: Send + 'static>(
        &self,
        asked: Asked,
        job: impl FnOnce(&mut Session<Own>, &Calls) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let runtime = runtime()?;
        // Moved into the job: if the call is dropped, no other call uses the connection before the
        // job ends.
        let mut database = Arc::clone(&self.database).lock_owned().await;
        let calls = self.calls;
        let done = runtime.spawn_blocking(move || database.run(|session| job(session, &calls))).await;
        done.map_err(|error| died(asked.doubt(), error))?
    }
}

/// Runs a job that reads on its own connection, on a thread that may block.
async fn look<R: Send + 'static>(job: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    runtime()?.spawn_blocking(job).await.map_err(|error| died(ErrorKind::Unavailable, error))?
}

fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::Unsupported, "the SQLite store needs a tokio runtime; call it within one")
            .because(error)
    })
}

/// The error if the thread panicked, or the runtime was shut down.
fn died(kind: ErrorKind, error: JoinError) -> Error {
    Error::new(kind, format!("the database's thread ended early: {error}")).because(error)
}

#[cfg(test)]
mod tests;
