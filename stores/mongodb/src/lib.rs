//! Ids from MongoDB: small, unique, ordered, in ranges or inside your transactions.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-mongodb).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`MongoStore`] keeps sequences in a MongoDB collection. [`MongoOptions`] describes the URL.
//!
//! # Guarantees
//!
//! README.md and INTERNALS.md describe durability and how ids are reserved. For ids without gaps, which need
//! a server with transactions, see [`InTransaction`].
//!
//! In addition to the limits in the README, ids can be repeated if a document is changed by hand, or if a
//! majority loses power while `writeConcernMajorityJournalDefault` is `false`.
//!
//! # Cancellation
//!
//! If a call is dropped, its command may already have been sent. The server then executes the command, and
//! the reserved range becomes a gap. The store closes the connection of the call.

mod classify;
mod connection;
mod largest;
mod options;
mod records;
mod reserve;
mod schema;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use ::mongodb::Collection;
use ::mongodb::bson::Document;
use idmill::store::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Identity, Listing, Page, Reserve,
    SequenceInfo, Store, already_exists, not_found,
};
use idmill::{Operation, Result, SequenceName};
use idmill_kit::paging;
use idmill_kit::{Contention, Fill, PerSequence, Scheme};

use self::connection::Commands;
use self::reserve::DUPLICATES;

pub use self::options::MongoOptions;
pub use self::transaction::{InTransaction, next_in, reserve_in};
/// The driver, in the version whose sessions [`reserve_in`] accepts.
pub use ::mongodb as driver;
pub use idmill;

const STORE: Scheme = Scheme::store::<MongoOptions>("mongodb", "mongodb://HOST/DATABASE");

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[STORE, STORE.alias("mongodb+srv")];

/// Opens the store at a URL such as `mongodb://HOST/DATABASE` and returns its sequences, whose refills run on
/// the current tokio runtime.
///
/// # Errors
/// Returns the errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<MongoOptions>(url).await
}

/// Default timeout of one command.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A store of sequences in a MongoDB collection. See the [crate docs](self) for its guarantees.
///
/// Clones share the driver's connections.
#[derive(Clone)]
pub struct MongoStore {
    commands: Commands,
    /// The stored max of each sequence, if it differs from the max in the request. Knowing the stored max
    /// saves two round trips per reserve.
    maxes: Arc<PerSequence<Option<u64>>>,
    /// Whether a missing collection is an error.
    must_exist: bool,
}

impl MongoStore {
    /// Creates a store on a collection of your client, without a request to the server. No other program
    /// should write to this collection.
    ///
    /// The store ignores the read and write concerns of the collection and the client, and uses its own.
    /// Set the client's `server_selection_timeout` below this store's [timeout](Self::timeout); otherwise
    /// an unreachable server is reported as `UnknownOutcome` instead of `Unavailable`.
    pub fn new<T: Send + Sync>(collection: &Collection<T>) -> Self {
        let namespace = collection.namespace();
        let database = collection.client().database(&namespace.db);
        Self::over(Commands::new(database, namespace.coll, DEFAULT_TIMEOUT))
    }

    /// Sets the timeout of one command. The default is 10 s; values below 1 ms are raised to 1 ms. A
    /// reserve is usually one command, and three commands if it creates the sequence.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.commands.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Connects to the server in a URL, as described at [`MongoOptions`].
    ///
    /// # Errors
    /// Returns the errors of [`MongoOptions::parse`] and of [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(MongoOptions::parse(url)?).await
    }

    /// Connects to a server, and detects whether it is a replica set. Creates no collection.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the driver rejects an option;
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if no primary can be reached;
    /// [`Denied`](idmill::ErrorKind::Denied) if the server rejects the credentials;
    /// [`NotFound`](idmill::ErrorKind::NotFound) if the collection is missing and the options require it.
    pub async fn open_with(options: MongoOptions) -> Result<Self> {
        options.open().await.map_err(|error| error.during(Operation::Connect))
    }

    fn over(commands: Commands) -> Self {
        Self { commands, maxes: Arc::default(), must_exist: false }
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let hint = self.maxes.with(&request.name, |max| *max);
        let grant = reserve::reserve(&self.commands, None, request, hint, None).await?;
        let expected = hint.unwrap_or_else(|| schema::likely_max(request));
        if grant.bounds.max() != expected {
            self.maxes.with(&request.name, |max| *max = Some(grant.bounds.max()));
        }
        Ok(grant)
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let info = SequenceInfo::new(name.clone(), schema::storable(bounds)?);
        let mut duplicates = 0;
        loop {
            let duplicate = self.commands.insert(None, schema::encode(&info)).await?;
            let Some(duplicate) = duplicate else { return Ok(info) };
            if duplicates >= DUPLICATES {
                return Err(duplicate);
            }
            // The name, or a value in a unique index of the user, is a duplicate.
            if self.try_inspect(name).await?.is_some() {
                return Err(already_exists(name));
            }
            duplicates += 1;
        }
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let found = self.commands.find(None, schema::by_name(name)).await?;
        found.map(|document| schema::decode(&document, name)).transpose()
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let listing: Listing =
            listed(&self.commands, page, |document, _| schema::decode_any(document)).await?;
        Ok(listing.sorted())
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        if let Some(max) = change.max {
            schema::within("max", max)?;
        }
        let set = || async {
            let seen = self.try_inspect(name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.clone();
            after.apply(&change)?;
            Ok(self.replace(&seen, &after).await?.then_some(after))
        };
        Contention::new().until(set).await
    }

    /// Writes the new state if the document is unchanged since it was read. Returns whether the state was
    /// written.
    async fn replace(&self, seen: &SequenceInfo, after: &SequenceInfo) -> Result<bool> {
        let modified = self.commands.modify(None, schema::unchanged(seen), schema::replace(after)).await?;
        Ok(modified.is_some())
    }

    /// Takes ids back. Returns `false`, without a retry, if the ids are not the last ones or the document
    /// has changed.
    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let Some(seen) = self.try_inspect(&back.name).await? else { return Ok(false) };
        let mut after = seen.clone();
        Ok(after.take_back(back) && self.replace(&seen, &after).await?)
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let removed = self.commands.remove(schema::to_remove(name, expected)).await?;
        if !removed && expected.is_some() {
            let seen = self.try_inspect(name).await?;
            seen.map_or(Ok(()), |seen| seen.check_identity(expected))?;
        }
        Ok(removed)
    }
}

/// Reads the documents of a page, and decodes each document with its name.
async fn listed<P: Fill>(
    commands: &Commands,
    page: &Page,
    decode: impl Fn(&Document, &str) -> Result<P::Row>,
) -> Result<P> {
    let read = |matching| commands.find_some(matching, paging::limit(page));
    // Up to one page of documents without a name is returned, with the first page of an unfiltered listing.
    let first = page.after.is_none() && page.prefix.is_empty();
    let mut all: Vec<Document> = if first { read(schema::unnamed()).await? } else { Vec::new() };
    let found: Vec<Document> = read(schema::within_page(page)).await?;
    let last = found.last().filter(|_| paging::is_full(page, found.len()));
    let next = last.and_then(|last| last.get_str("_id").ok()).map(Cursor::new);
    all.extend(found);
    let row = |document| decode(document, &schema::shown(document));
    Ok(P::of(next, all.iter().map(|document| (schema::shown(document), row(document)))))
}

impl Store for MongoStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).gives_back(true).records(true)
    }

    idmill::store_calls!(reserve give_back create inspect list set remove record swap_record list_records);
}

// Omits the client, whose options contain a password.
idmill_kit::debug_fields!(MongoStore | store | collection = store.commands.namespace());
