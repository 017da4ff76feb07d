//! Ids from Google Cloud Datastore: small, unique, ordered, in ranges.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-datastore).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`DatastoreStore`] keeps sequences in Google Cloud Datastore (Firestore in Datastore mode).
//! [`DatastoreOptions`] describes the URL.
//!
//! # Guarantees
//!
//! README.md and INTERNALS.md describe durability, consistency, and the limits of writes to one entity. If a
//! commit gets no reply, or a status that leaves the outcome open, the error is
//! [`UnknownOutcome`](idmill::ErrorKind::UnknownOutcome) and the commit is not sent again.
//!
//! # Cancellation
//!
//! If a call is dropped before its commit is sent, it has no effect. If it is dropped later, the commit may
//! be applied, and the reserved range becomes a gap.

mod classify;
mod connection;
mod options;
mod records;
mod schema;

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Capabilities, Cursor, Durability, Listing, Page, SequenceInfo, Store, StoreFuture};
use idmill::{Operation, Result, SequenceName};
use idmill_kit::Scheme;
use idmill_kit::paging;
use idmill_kit::{CompareAndSet, Contention, Fill, Resend, Swapped, Swapping};
use serde_json::{Value, json};

use self::connection::Client;
use self::schema::{Entities, Stored};

pub use self::options::DatastoreOptions;
pub use idmill;
pub use token_source::TokenSource;

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[Scheme::store::<DatastoreOptions>("datastore", "datastore://PROJECT")];

/// Opens the store at a URL such as `datastore://PROJECT` and returns its sequences, whose refills run on the
/// current tokio runtime.
///
/// # Errors
/// Returns the errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<DatastoreOptions>(url).await
}

/// A store of sequences, which are entities of one kind in a Datastore database. See the [crate docs](self)
/// for its guarantees.
///
/// Clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct DatastoreStore {
    client: Client,
    entities: Arc<Entities>,
    records: Arc<Entities>,
}

impl DatastoreStore {
    /// Opens a database with the credentials of the environment (application default credentials), or an
    /// emulator without credentials. Sends one read, to detect errors early. Creates nothing.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid;
    /// [`Denied`](idmill::ErrorKind::Denied) if credentials or a permission are missing;
    /// [`NotFound`](idmill::ErrorKind::NotFound) if the project or the database does not exist;
    /// [`Conflict`](idmill::ErrorKind::Conflict) if the database is of another type;
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if Datastore cannot be reached.
    pub async fn open_with(options: DatastoreOptions) -> Result<Self> {
        Self::open(options, None).await.map_err(|error| error.during(Operation::Connect))
    }

    /// Like [`open_with`](Self::open_with), with your own credentials. Each request carries an
    /// `authorization` header (`Bearer …`) from `tokens`, even to an emulator.
    ///
    /// # Errors
    /// Returns the errors of [`open_with`](Self::open_with).
    pub async fn open_with_tokens(options: DatastoreOptions, tokens: Arc<dyn TokenSource>) -> Result<Self> {
        Self::open(options, Some(tokens)).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn open(options: DatastoreOptions, tokens: Option<Arc<dyn TokenSource>>) -> Result<Self> {
        options.check()?;
        let client = Client::new(&options, tokens).await?;
        let entities = Arc::new(Entities::new(&options));
        client.find(&entities.nobody()).await?;
        let records = Arc::new(entities.of_records());
        Ok(Self { client, entities, records })
    }

    /// Reads the entities of a page, and the cursor of the next page. The prefix is filtered in the client,
    /// because keys are escaped names and sort differently.
    async fn listed<P: Fill>(
        &self,
        entities: &Entities,
        page: &Page,
        decode: impl Fn(&Value) -> Result<P::Row>,
    ) -> Result<P> {
        let mut query = json!({ "kind": [{ "name": entities.kind }], "limit": paging::limit(page) });
        if let Some(after) = &page.after {
            query["startCursor"] = Value::from(after.as_str());
        }
        let answer = self.client.query(entities.partition(), &query).await?;
        let batch = &answer["batch"];
        let results = batch["entityResults"].as_array().map_or(&[][..], Vec::as_slice);
        let end = batch["endCursor"].as_str();
        let more = match batch["moreResults"].as_str() {
            Some("NOT_FINISHED") => true,
            Some("NO_MORE_RESULTS") => false,
            // An emulator may report that more results follow each full page, even if none do. An emulator
            // can also begin a page with the entities of other databases whose key equals the last key of the
            // previous page.
            _ => !results.is_empty() && end != page.after.as_ref().map(Cursor::as_str),
        };
        // For the default database, an emulator returns the entities of all databases.
        let ours =
            |result: &&Value| entities.holds(result) && schema::shown(result).starts_with(&page.prefix);
        let rows = results.iter().filter(ours).map(|result| (schema::shown(result), decode(result)));
        Ok(P::of(end.filter(|_| more).map(Cursor::new), rows))
    }
}

/// Returns a mutation that fails if the entity no longer has this version.
///
/// FAIL is set explicitly because the server chooses the default: Google's newer emulator would silently
/// overwrite the other version.
fn over(operation: &str, value: &Value, version: &str) -> Value {
    json!({ operation: value, "baseVersion": version, "conflictResolutionStrategy": "FAIL" })
}

impl Store for DatastoreStore {
    idmill::store_calls!(|this| Swapping(this) =>
        capabilities reserve give_back create inspect list set remove);
    idmill::store_calls!(record swap_record list_records);
}

impl CompareAndSet for DatastoreStore {
    type Version = String;

    fn can(&self) -> Capabilities {
        // `batches` is off: one contended sequence would make a commit of several sequences fail or wait as
        // a whole.
        Capabilities::new(Durability::Disk).shared(true).gives_back(true).records(true)
    }

    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Stored>>> {
        Box::pin(async move {
            let found = self.client.find(&self.entities.key(name)).await?;
            found.map(|found| self.entities.decode(&found)).transpose()
        })
    }

    // `Resend` is ignored, because a commit is sent only once.
    fn swap<'a>(
        &'a self,
        _: &'a SequenceName,
        seen: Option<&'a Stored>,
        wanted: Option<&'a SequenceInfo>,
        _: Resend,
    ) -> StoreFuture<'a, Result<Swapped<String>>> {
        Box::pin(async move {
            let mutation = match (seen, wanted) {
                (None, None) => return Ok(Swapped::Done),
                (None, Some(wanted)) => json!({ "insert": self.entities.entity(wanted) }),
                (Some(seen), None) => over("delete", &self.entities.key(&seen.info.name), &seen.version),
                (Some(seen), Some(wanted)) => over("update", &self.entities.entity(wanted), &seen.version),
            };
            self.client.commit(&mutation).await
        })
    }

    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            let decode = |result: &Value| Ok(self.entities.decode(result)?.info);
            Ok(self.listed::<Listing>(&self.entities, page, decode).await?.sorted())
        })
    }

    /// Pauses after every lost race, because every attempt is billed.
    fn contention(&self) -> Contention {
        Contention::new().every(1).pauses(Duration::from_millis(10), Duration::from_secs(1))
    }
}
