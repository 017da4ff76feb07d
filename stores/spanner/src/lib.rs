//! Ids from Cloud Spanner: small, unique, ordered, in ranges or inside your transactions.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-spanner).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`SpannerStore`] keeps sequences in a Cloud Spanner database. [`SpannerOptions`] describes the URL.
//!
//! # Guarantees
//!
//! - **Durable**: a range is committed on a majority of the replicas before any of its ids is handed out.
//! - **Shared**: any number of processes can use one table.
//! - **Gapless**, on request: see [`InTransaction`] and [`SequenceTransaction`].
//!
//! # Five modes
//!
//! | mode | here |
//! | --- | --- |
//! | in-transaction, one value | [`next_in`], [`InTransaction`] |
//! | in-transaction, several values with one read and one write | [`SequenceTransaction`] |
//! | asynchronous: one transaction for waiting callers | [`Order::Global`]; [`step(1).watermark(0)`][step] |
//! | batch | [`step(200).watermark(0)`](idmill::SequenceBuilder::watermark) |
//! | asynchronous batch | [`step(200).watermark(50)`](idmill::SequenceBuilder::watermark) |
//!
//! [`Order::Global`]: idmill::Order::Global
//! [step]: idmill::SequenceBuilder::step
//!
//! # Cancellation
//!
//! A transaction runs in a task. If its caller is dropped before the commit is sent, the transaction is
//! rolled back and its lock is released. If the caller is dropped later, the transaction still commits, and
//! its range becomes a gap.

mod aborted;
mod classify;
mod connection;
mod options;
mod records;
mod schema;
mod transaction;

use gcloud_spanner::client::Client;
use idmill::store::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Identity, Listing, Page, Reserve,
    SequenceInfo, Store, already_exists, not_found,
};
use idmill::{Error, Operation, Result, SequenceName};
use idmill_kit::{Fill as _, Scheme, decide};

use self::classify::client_failed;
use self::connection::{Database, read};
use self::schema::{Found, Layout, Stored, Table};

pub use self::aborted::{Abort, TransactionError};
pub use self::options::SpannerOptions;
pub use self::transaction::{InTransaction, SequenceTransaction, next_in, reserve_in, until_committed};
/// The driver, in the version whose transactions [`reserve_in`] accepts.
pub use gcloud_spanner;
pub use idmill;
pub use idmill_kit::Mode;

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] =
    &[Scheme::store::<SpannerOptions>("spanner", "spanner://projects/P/instances/I/databases/D")];

/// Opens the store at a URL such as `spanner://projects/P/instances/I/databases/D` and returns its sequences,
/// whose refills run on the current tokio runtime.
///
/// # Errors
/// Returns the errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<SpannerOptions>(url).await
}

/// A store of sequences in a table of a Spanner database. See the [crate docs](self) for its guarantees.
///
/// Clones share one client.
#[derive(Clone, Debug)]
pub struct SpannerStore {
    database: Database,
    access: Mode,
}

impl SpannerStore {
    /// Opens the database with this full name, `projects/P/instances/I/databases/D`.
    ///
    /// # Errors
    /// Returns the errors of [`open_with`](Self::open_with).
    pub async fn open(database: &str) -> Result<Self> {
        Self::open_with(SpannerOptions::new(database)).await
    }

    /// Opens a database with the default credentials of Google's clients, or an emulator without credentials.
    /// If the future is dropped, the table may already have been created.
    ///
    /// # Errors
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid.
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if the database is missing, or if the table is missing and
    ///   the mode does not allow its creation.
    /// - [`Denied`](idmill::ErrorKind::Denied) if credentials or a permission are missing.
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if Spanner cannot be reached.
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the table exists but does not hold sequences.
    pub async fn open_with(options: SpannerOptions) -> Result<Self> {
        let opening = async {
            let options = options.checked()?;
            let access = options.mode;
            Ok(Self { database: Database::open(options).await?, access })
        };
        opening.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    /// Opens a store that uses the caller's client, with the table and the mode of the options. Their
    /// database and emulator are not used. The table must exist; [`ddl`](Self::ddl) returns the statement
    /// that creates it.
    ///
    /// # Errors
    /// Returns the errors of [`open_with`](Self::open_with).
    pub async fn from_client(client: Client, options: SpannerOptions) -> Result<Self> {
        let opening = async {
            let database = Database::with_client(client, options.checked_table()?).await?;
            Ok(Self { database, access: options.mode.existing() })
        };
        opening.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    /// Returns the driver's client, for your own transactions.
    pub fn client(&self) -> &Client {
        &self.database.client
    }

    /// Returns the statement that creates a table, for schemas that are kept in files.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the name is invalid.
    pub fn ddl(table: &str) -> Result<String> {
        Ok(Table::new(table)?.ddl())
    }

    /// Returns the statement that creates the records table of a sequences table, for schemas that are kept
    /// in files. In [`Mode::Create`], the store runs it before it writes the first record.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the name is invalid, or too long to derive the
    /// records table's name.
    pub fn witness_ddl(table: &str) -> Result<String> {
        Table::new(table)?.witness_ddl()
    }

    /// Reads a sequence and writes the state that `decide` returns, in one transaction.
    async fn change<R: Send + 'static>(
        &self,
        name: &SequenceName,
        decide: impl Fn(&Table, Stored) -> Result<(Option<SequenceInfo>, R)> + Clone + Send + Sync + 'static,
    ) -> Result<R> {
        self.access.must_write()?;
        let (table, name) = (self.database.table.clone(), name.clone());
        let select = table.select_for_update(&name);
        let change = move |found: Found| {
            let stored = table.stored(&found)?;
            let (after, outcome) = decide(&table, stored.clone())?;
            Ok((outcome, table.write(&name, &stored, after.as_ref())?))
        };
        self.database.run(select, change).await
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let owned = request.clone();
        let reserve = move |table: &Table, stored: Stored| {
            let info = match stored.info {
                Some(info) => info,
                None => table.fresh(&owned.name, owned.creation()?, stored.layout)?,
            };
            let (info, grant) = decide(Some(info), &owned, None)?;
            Ok((Some(info), grant))
        };
        self.change(&request.name, reserve).await
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let wanted = name.clone();
        let create = move |table: &Table, stored: Stored| {
            if stored.info.is_some() {
                return Err(already_exists(&wanted));
            }
            let info = table.fresh(&wanted, bounds, stored.layout)?;
            Ok((Some(info.clone()), info))
        };
        self.change(name, create).await
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let wanted = name.clone();
        let set = move |_: &Table, stored: Stored| {
            let mut info = stored.info.ok_or_else(|| not_found(&wanted))?;
            info.apply(&change)?;
            Ok((Some(info.clone()), info))
        };
        self.change(name, set).await
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let owned = back.clone();
        let take_back = move |_: &Table, Stored { mut info, layout }: Stored| {
            // A plain table does not show whether the sequence was removed and created again.
            let info_taken = info.as_mut().filter(|_| layout != Layout::Plain);
            let taken = info_taken.is_some_and(|info| info.take_back(&owned));
            Ok((info, taken))
        };
        self.change(&back.name, take_back).await
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        self.database.select(self.database.table.select(name)).await
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let (table, mut single) =
            (&self.database.table, self.client().single().await.map_err(client_failed)?);
        let (fields, found) = read(&mut single, table.select_page("*", page)).await?;
        let columns = table.columns(&fields)?;
        // An invalid row is listed as an error for its name, with the valid rows.
        let rows = found.iter().map(|row| (Table::name(row, &columns), table.decode(row, &columns)));
        Ok(Listing::by_name(page, rows.collect()))
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let remove = move |_: &Table, Stored { info, .. }: Stored| {
            info.as_ref().map_or(Ok(()), |info| info.check_identity(expected))?;
            Ok((None, info.is_some()))
        };
        self.change(name, remove).await
    }
}

impl Store for SpannerStore {
    /// Returns the capabilities of Spanner, also for an emulator, although an emulator loses all data when
    /// its process ends.
    ///
    /// `batches` is off. One transaction over several rows would wait for the most contended row, which
    /// another transaction may lock for seconds, and would be aborted as a whole. Separate concurrent
    /// transactions need the same number of round trips, and do not wait for each other.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).gives_back(true).records(true)
    }

    idmill::store_calls!(reserve give_back create inspect list set remove record swap_record list_records);
}
