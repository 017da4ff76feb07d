//! Sequences in a Cloud Spanner database: `spanner://projects/P/instances/I/databases/D?table=NAME`.
//!
//! # What holds
//!
//! - **Durable**: a range is committed, on a majority of the replicas, before an id of it is handed out.
//! - **Shared**: any number of processes may use one table. Each reserve is a transaction that reads one row
//!   with its lock and writes it; what Spanner aborts is run again, after a pause that grows and has jitter.
//! - **Nothing is guessed**: a commit is sent once. If it is not answered, the outcome is unknown and its ids
//!   are a gap. The driver would send it again.
//! - **Independent of the caller's transactions**: a reserve runs on a session of its own. It may be awaited
//!   while a transaction of the caller's is open, which Spanner does not nest.
//! - **Gapless**, where it is asked for: see [`InTransaction`] and [`SequenceTransaction`].
//!
//! # Five modes
//!
//! | mode | here |
//! | --- | --- |
//! | in-transaction, one value | [`next_in`], [`InTransaction`] |
//! | in-transaction, several values with one read and one write | [`SequenceTransaction`] |
//! | asynchronous: each value in a transaction of its own | [`Order::Global`](crate::Order::Global), or [`step(1).watermark(0)`](crate::SequenceBuilder::step) |
//! | batch | [`step(200).watermark(0)`](crate::SequenceBuilder::watermark) |
//! | asynchronous batch | [`step(200).watermark(50)`](crate::SequenceBuilder::watermark) |
//!
//! The table that is published with these modes, `(name STRING(64), next_value INT64)`, is read and drawn
//! from as it is, and other programs may go on drawing from it: see `docs/stores/spanner.md`.
//!
//! # Cancellation
//!
//! A transaction runs in a task. If its caller is dropped before the commit is sent, it is rolled back, and
//! its lock released; after that it goes on to its commit, and the range is a gap.

mod classify;
mod database;
mod options;
mod schema;
mod transaction;

use gcloud_spanner::client::Client;

use self::database::Database;
use self::schema::{Layout, Table};
use super::calls::calls;
use super::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Listing, Page, Reserve, RetryCost,
    SequenceInfo, Store, already_exists, not_found,
};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;

pub use self::options::SpannerOptions;
pub use self::transaction::{InTransaction, SequenceTransaction, next_in, reserve_in, until_committed};
pub use super::Mode;
/// The driver, in the version whose transactions [`reserve_in`] takes.
pub use gcloud_spanner;

/// Sequences in a table of a Spanner database. See the [module](self) for what holds.
///
/// Clones share one client.
#[derive(Clone, Debug)]
pub struct SpannerStore {
    database: Database,
    access: Mode,
}

impl SpannerStore {
    /// Opens the database of this full name, `projects/P/instances/I/databases/D`.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub async fn open(database: &str) -> Result<Self> {
        Self::open_with(SpannerOptions::new(database)).await
    }

    /// Opens a database. Credentials are the default ones of Google's clients; an emulator takes none.
    /// Dropping the future can leave the table created.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that cannot be;
    /// [`NotFound`](ErrorKind::NotFound) if the database is missing, or the table and it is not to be
    /// created; [`Denied`](ErrorKind::Denied) without credentials or permission;
    /// [`Unavailable`](ErrorKind::Unavailable) if Spanner cannot be reached;
    /// [`Conflict`](ErrorKind::Conflict) if the table is there but not one of sequences.
    pub async fn open_with(options: SpannerOptions) -> Result<Self> {
        let opening = async {
            let options = options.check()?;
            let access = options.mode;
            Ok(Self { database: Database::open(options).await?, access })
        };
        opening.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    /// Uses a client that is there already, whose table must exist: [`ddl`](Self::ddl) creates it.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub async fn from_client(client: Client, table: &str) -> Result<Self> {
        let opening = async {
            let database = Database::with_client(client, Table::new(table)?).await?;
            Ok(Self { database, access: Mode::ReadWrite })
        };
        opening.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    /// The driver's client, for transactions of the caller's own.
    pub fn client(&self) -> &Client {
        self.database.client()
    }

    /// The statement that creates a table, for those who keep their schema in files.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that cannot be.
    pub fn ddl(table: &str) -> Result<String> {
        Ok(Table::new(table)?.ddl())
    }

    async fn change<R: Send + 'static>(
        &self,
        name: &SequenceName,
        decide: impl database::Decide<R>,
    ) -> Result<R> {
        if self.access == Mode::ReadOnly {
            let message = "the store was opened to look only (mode=ro); open it with mode=rw";
            return Err(Error::new(ErrorKind::Denied, message));
        }
        self.database.change(name, decide).await
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let request = request.clone();
        let name = request.name.clone();
        self.change(&name, move |table, stored| {
            let exists = stored.info.is_some();
            let mut info = match stored.info {
                Some(info) => info,
                None => table.fresh(&request.name, request.creation()?, stored.layout)?,
            };
            let grant = info.grant(request.count, request.ceiling)?;
            let write = if exists { table.advance(&info) } else { table.insert(&info, stored.layout) };
            Ok((grant, vec![write]))
        })
        .await
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let wanted = name.clone();
        self.change(name, move |table, stored| {
            if stored.info.is_some() {
                return Err(already_exists(&wanted));
            }
            let info = table.fresh(&wanted, bounds, stored.layout)?;
            let write = table.insert(&info, stored.layout);
            Ok((info, vec![write]))
        })
        .await
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let wanted = name.clone();
        self.change(name, move |table, stored| {
            let before = stored.info.ok_or_else(|| not_found(&wanted))?;
            let mut info = before.clone();
            info.apply(&change)?;
            let beyond = (info.bounds, info.identity) != (before.bounds, before.identity);
            if beyond && stored.layout == Layout::Plain {
                return Err(table.lacks_columns(&wanted, "a max, or for a step backwards"));
            }
            let write = if beyond { table.update(&info, stored.layout) } else { table.advance(&info) };
            Ok((info, vec![write]))
        })
        .await
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let owned = back.clone();
        self.change(&back.name, move |table, stored| {
            // A table as published does not show whether the sequence is still the same.
            let info = stored.info.filter(|_| stored.layout != Layout::Plain);
            let taken = info.and_then(|mut info| info.take_back(&owned).then_some(info));
            Ok((taken.is_some(), taken.map(|info| table.advance(&info)).into_iter().collect()))
        })
        .await
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        Ok(self.database.select(self.database.table().select(name)).await?.into_iter().next())
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let found = self.database.select_each(self.database.table().select_page(page)).await?;
        let full = found.len() >= page.limit.max(1);
        let mut listing = Listing::default();
        for (name, row) in found {
            listing.next = full.then(|| Cursor::new(name.as_str()));
            listing.add(name, row);
        }
        Ok(listing)
    }

    async fn try_remove(&self, name: &SequenceName) -> Result<bool> {
        let wanted = name.clone();
        self.change(name, move |table, stored| {
            if stored.info.is_none() {
                return Ok((false, Vec::new()));
            }
            // Created again, it could not be told from the one before, whose ids
            // others may still have in memory.
            if stored.layout == Layout::Plain {
                return Err(
                    table.lacks_columns(&wanted, "telling it from one of the same name that comes later")
                );
            }
            Ok((true, vec![table.delete(&wanted)]))
        })
        .await
    }
}

impl Store for SpannerStore {
    /// Those of Spanner, also over an emulator, which forgets everything when its process ends.
    ///
    /// `batches` is off: one transaction over several rows waits for the most contended of them, which a
    /// transaction of somebody else's may hold for seconds, and is aborted as a whole. Each sequence in a
    /// transaction of its own, at the same time, costs as many round trips and waits for nobody.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::Disk,
            retry: RetryCost::Gap,
            batches: false,
            shared: true,
            gives_back: true,
        }
    }

    calls!(reserve give_back create inspect list set remove);
}
