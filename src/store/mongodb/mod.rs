//! Sequences in a MongoDB collection: `mongodb://HOST/DATABASE?collection=NAME&timeout=10s`.
//!
//! # What holds
//!
//! - **Durable**: a range is on the disks of a majority before an id of it is handed out: every write asks
//!   for `w: "majority", j: true`, whatever the client's own settings. One that was not confirmed so is
//!   [`UnknownOutcome`](crate::ErrorKind::UnknownOutcome), and its ids are a gap.
//! - **Atomic**: a reserve is one `findAndModify` on one document, under a condition that keeps it in bounds.
//!   MongoDB runs those one after another for each document.
//! - **Sent once**: no write is sent again after it may have arrived, whatever `retryWrites` says.
//! - **Gapless**, where it is asked for and the server has transactions: see [`InTransaction`].
//!
//! Ids end at 2^63 - 1. The sequence of a `u64` that is created without a max of its own ends
//! there; bounds beyond are refused.
//!
//! What MongoDB cannot protect from: a restored backup, a `writeConcernMajorityJournalDefault`
//! of false together with a power failure of a majority, and whoever changes a document by
//! hand. See `docs/stores/mongodb.md`.
//!
//! # Cancellation
//!
//! A call that is dropped may have been sent, and is then carried out; the range it reserved is a
//! gap. Its connection is closed.

mod classify;
mod commands;
mod options;
mod reserve;
mod schema;
mod transaction;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use ::mongodb::Collection;
use ::mongodb::bson::Document;

use self::classify::{Asked, failed};
use self::commands::Commands;
use self::reserve::{DUPLICATES, Fit, TRIES, crowded};
use super::calls::calls;
use super::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Listing, Page, Reserve, RetryCost,
    SequenceInfo, Store, already_exists, not_found,
};
use crate::error::{Operation, Result};
use crate::name::SequenceName;
use crate::sync::{Arc, Mutex};

pub use self::options::MongoOptions;
pub use self::transaction::{InTransaction, next_in, reserve_in};
/// The driver, in the version whose sessions [`reserve_in`] takes.
pub use ::mongodb as driver;

/// How long one command may take unless told otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sequences in a MongoDB collection. See the [module](self) for what holds.
///
/// Clones share the driver's connections.
#[derive(Clone)]
pub struct MongoStore {
    commands: Commands,
    /// The max of sequences that were created with another than those who reserve
    /// would: saves them two round trips.
    maxes: Arc<Mutex<HashMap<SequenceName, u64>>>,
}

impl MongoStore {
    /// Over a collection of a client that the caller has, which nothing else should
    /// write to. Sends nothing yet.
    ///
    /// The collection's and the client's read and write concerns are not looked at: this store has its own.
    /// Set the client's `server_selection_timeout` below this store's [timeout](Self::timeout), or a server
    /// that cannot be reached is an unknown outcome instead of an unavailable store.
    pub fn new<T: Send + Sync>(collection: &Collection<T>) -> Self {
        let namespace = collection.namespace();
        let database = collection.client().database(&namespace.db);
        Self::over(Commands::new(database, namespace.coll, DEFAULT_TIMEOUT))
    }

    /// How long one command may take before it is given up, 1 ms or more; default 10 s. A reserve is one
    /// command as a rule, and three where the sequence is created.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.commands.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Connects to the server that a URL names: see [`MongoOptions`].
    ///
    /// # Errors
    /// Those of [`MongoOptions::parse`] and of [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(MongoOptions::parse(url)?).await
    }

    /// Connects to a server, and asks it what it is. Creates nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for options that the driver refuses;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if no primary can be reached;
    /// [`Denied`](crate::ErrorKind::Denied); [`NotFound`](crate::ErrorKind::NotFound) if the collection
    /// is missing and was to exist.
    pub async fn open_with(options: MongoOptions) -> Result<Self> {
        options.open().await.map_err(|error| error.during(Operation::Connect))
    }

    fn over(commands: Commands) -> Self {
        Self { commands, maxes: Arc::default() }
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let hint = self.maxes.lock().get(&request.name).copied();
        let grant = reserve::reserve(&self.commands, None, request, hint, Fit::UpTo).await?;
        let expected = hint.unwrap_or_else(|| schema::likely_max(request));
        if grant.bounds.max() != expected {
            self.maxes.lock().insert(request.name.clone(), grant.bounds.max());
        }
        Ok(grant)
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let info = schema::fresh(name, schema::storable(bounds)?);
        let mut duplicates = 0;
        loop {
            let Err(fault) = self.commands.insert(None, schema::encode(&info)).await else { return Ok(info) };
            if !fault.is_duplicate() || duplicates >= DUPLICATES {
                return Err(failed(&fault, Asked::Write));
            }
            // Of this name, or of something that a unique index of somebody's forbids.
            if self.try_inspect(name).await?.is_some() {
                return Err(already_exists(name));
            }
            duplicates += 1;
        }
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let found = self.commands.find(None, schema::by_name(name)).await;
        let found = found.map_err(|fault| failed(&fault, Asked::Read))?;
        found.map(|document| schema::decode(&document, name)).transpose()
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let read = |matching| async move {
            let found = self.commands.find_some(matching, page.rows()).await;
            found.map_err(|fault| failed(&fault, Asked::Read))
        };
        let mut listing = Listing::default();
        // These are no names: they are reported once, with the first page.
        if page.after.is_none() && page.prefix.is_empty() {
            for document in read(schema::unnamed()).await? {
                listing.add(schema::shown(&document), schema::decode_any(&document));
            }
        }
        let found: Vec<Document> = read(schema::within_page(page)).await?;
        for document in &found {
            listing.add(schema::shown(document), schema::decode_any(document));
        }
        let last = found.last().filter(|_| found.len() >= page.limit.max(1));
        listing.next = last.and_then(|last| last.get_str("_id").ok()).map(Cursor::new);
        Ok(listing.sorted())
    }

    /// Reads, decides, and writes if nothing has changed meanwhile; if something has, begins again.
    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        if let Some(max) = change.max {
            schema::within("max", max)?;
        }
        for _ in 0..TRIES {
            let seen = self.try_inspect(name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.clone();
            after.apply(&change)?;
            let outcome = self.commands.modify(None, schema::unchanged(&seen), schema::replace(&after)).await;
            if outcome.map_err(|fault| failed(&fault, Asked::Write))?.is_some() {
                return Ok(after);
            }
        }
        Err(crowded())
    }

    /// Reads, and writes once, if nothing has changed meanwhile.
    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let Some(seen) = self.try_inspect(&back.name).await? else { return Ok(false) };
        let mut after = seen.clone();
        if !after.take_back(back) {
            return Ok(false);
        }
        let outcome = self.commands.modify(None, schema::unchanged(&seen), schema::replace(&after)).await;
        Ok(outcome.map_err(|fault| failed(&fault, Asked::Write))?.is_some())
    }

    async fn try_remove(&self, name: &SequenceName) -> Result<bool> {
        let outcome = self.commands.remove(schema::by_name(name)).await;
        outcome.map_err(|fault| failed(&fault, Asked::Write))
    }
}

impl Store for MongoStore {
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

/// Not the client, whose options hold a password.
impl fmt::Debug for MongoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoStore").field("collection", &self.commands.namespace()).finish_non_exhaustive()
    }
}
