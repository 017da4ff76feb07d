//! Sequences in Google Cloud Datastore (Firestore in Datastore mode):
//! `datastore://PROJECT[/DATABASE]?namespace=NAME&kind=NAME&emulator=HOST:PORT&timeout=10s`.
//!
//! # What holds
//!
//! - **Durable**: Datastore answers a commit once it is replicated.
//! - **Shared**: any number of processes may reserve. A change is tied to the version of the entity that was
//!   read, and the whole commit fails if that is no longer the stored one; the loser reads again. No
//!   transaction stays open between the read and the commit, so a process that is paused or killed there
//!   keeps nobody waiting, in none of the database's concurrency modes.
//! - **Honest**: a commit that was not answered, or answered with a status that leaves it open, is an
//!   [`UnknownOutcome`](ErrorKind::UnknownOutcome); it is not sent again.
//!
//! Each sequence is one entity, and writes to one entity have their limits: see
//! `docs/stores/datastore.md` for sizes and costs.
//!
//! # Cancellation
//!
//! A call that is dropped before its commit was sent does nothing; after that it may be applied, and
//! the range it reserved is a gap.

mod classify;
mod client;
mod options;
mod schema;

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::classify::Verdict;
use self::client::Client;
use self::schema::{Place, Stored};
use super::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Listing, Page, Reserve, RetryCost,
    SequenceInfo, Store, StoreFuture, already_exists, not_found,
};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::sync::Arc;

pub use self::options::DatastoreOptions;
pub use token_source::TokenSource;

/// How long a change goes on while others are faster each time. None of the tries was applied.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sequences in a kind of a Datastore database. See the [module](self) for what holds.
///
/// Clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct DatastoreStore {
    client: Client,
    place: Arc<Place>,
}

impl DatastoreStore {
    /// Opens a database, with the credentials of the environment (application default credentials), or an
    /// emulator without any. Reads once, so that what is wrong is known now; creates nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that cannot be; [`Denied`](ErrorKind::Denied)
    /// without credentials or rights; [`NotFound`](ErrorKind::NotFound) if there is no such project or
    /// database; [`Conflict`](ErrorKind::Conflict) if the database is of another type;
    /// [`Unavailable`](ErrorKind::Unavailable) if it cannot be reached.
    pub async fn open_with(options: DatastoreOptions) -> Result<Self> {
        Self::open(options, None).await.map_err(|error| error.during(Operation::Connect))
    }

    /// As [`open_with`](Self::open_with), with credentials of your own: each request carries what `tokens`
    /// gives for its `authorization` header (`Bearer …`), to an emulator too.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub async fn open_with_tokens(options: DatastoreOptions, tokens: Arc<dyn TokenSource>) -> Result<Self> {
        Self::open(options, Some(tokens)).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn open(options: DatastoreOptions, tokens: Option<Arc<dyn TokenSource>>) -> Result<Self> {
        options.check()?;
        let client = Client::new(&options, tokens).await?;
        let place = Arc::new(Place::new(&options));
        client.lookup(&place.nobody()).await?;
        Ok(Self { client, place })
    }

    async fn read(&self, name: &SequenceName) -> Result<Option<Stored>> {
        let key = self.place.key(name);
        loop {
            let answer = self.client.lookup(&key).await?;
            let first = |what: &str| answer[what].get(0);
            if let Some(found) = first("found") {
                return self.place.decode(found).map(Some);
            }
            if first("missing").is_some() {
                return Ok(None);
            }
            // The server had no time for this key; it says so instead of failing.
            if first("deferred").is_none() {
                return Err(Error::new(ErrorKind::StoreViolation, "a lookup was answered without its key"));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads a sequence, lets `decide` say what it is to be (`None`: gone), and writes that if it is another.
    /// Begins again when others changed it in between, so `decide` may be called several times.
    async fn change<R>(
        &self,
        name: &SequenceName,
        decide: impl Fn(Option<SequenceInfo>) -> Result<(Option<SequenceInfo>, R)>,
    ) -> Result<R> {
        let begun = Instant::now();
        let mut waits = contention().build();
        loop {
            let stored = self.read(name).await?;
            let (wanted, outcome) = decide(stored.as_ref().map(|stored| stored.info.clone()))?;
            let Some(mutation) = self.mutation(stored.as_ref(), wanted.as_ref()) else { return Ok(outcome) };
            match self.client.commit(&mutation).await {
                Ok(()) => return Ok(outcome),
                Err(Verdict::Failed(error)) => return Err(error),
                Err(Verdict::Conflict(error)) if begun.elapsed() > PATIENCE => return Err(crowded(error)),
                Err(Verdict::Conflict(_)) => {
                    // Anywhere within the pause, so that those who met do not meet again.
                    let wait = waits.next().unwrap_or(PATIENCE).mul_f64(fastrand::f64());
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Reads, and writes once. Not as a [`change`](Self::change), which begins again after a
    /// conflict: that may be with our own write, if something on the way sent it twice, and others
    /// may have reserved what it gave back.
    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let stored = self.read(&back.name).await?;
        let mut wanted = stored.as_ref().map(|stored| stored.info.clone());
        let taken = wanted.as_mut().is_some_and(|info| info.take_back(back));
        let Some(mutation) = self.mutation(stored.as_ref(), wanted.as_ref()).filter(|_| taken) else {
            return Ok(false);
        };
        match self.client.commit(&mutation).await {
            Ok(()) => Ok(true),
            Err(Verdict::Conflict(_)) => Ok(false),
            Err(Verdict::Failed(error)) => Err(error),
        }
    }

    /// What turns the stored sequence into the wanted one, and fails if something else is stored;
    /// `None` if nothing is to be done.
    fn mutation(&self, stored: Option<&Stored>, wanted: Option<&SequenceInfo>) -> Option<Value> {
        // FAIL is said because what is done without it is the server's choice: Google's newer emulator then
        // writes over the other version and tells nobody.
        let over = |stored: &Stored, operation: &str, value: Value| {
            json!({
                operation: value,
                "baseVersion": stored.version,
                "conflictResolutionStrategy": "FAIL",
            })
        };
        match (stored, wanted) {
            (None, None) => None,
            (None, Some(wanted)) => Some(json!({ "insert": self.place.entity(wanted) })),
            (Some(stored), None) => Some(over(stored, "delete", self.place.key(&stored.info.name))),
            (Some(stored), Some(wanted)) if stored.info == *wanted => None,
            (Some(stored), Some(wanted)) => Some(over(stored, "update", self.place.entity(wanted))),
        }
    }

    /// Reads a page of all; the prefix is looked at here, since keys are escaped
    /// names and have another order.
    async fn read_page(&self, page: &Page) -> Result<Listing> {
        let mut query = json!({ "kind": [{ "name": self.place.kind() }], "limit": page.rows() });
        if let Some(after) = &page.after {
            query["startCursor"] = Value::from(after.as_str());
        }
        let answer = self.client.query(self.place.partition(), &query).await?;
        let batch = &answer["batch"];
        let results = batch["entityResults"].as_array().map_or(&[][..], Vec::as_slice);
        let mut listing = Listing::default();
        // An emulator answers for the default database with the entities of all.
        for result in results.iter().filter(|result| self.place.holds(result)) {
            let name = schema::shown(result);
            if name.starts_with(&page.prefix) {
                listing.add(name, self.place.decode(result).map(|stored| stored.info));
            }
        }
        let end = batch["endCursor"].as_str();
        let more = match batch["moreResults"].as_str() {
            Some("NOT_FINISHED") => true,
            Some("NO_MORE_RESULTS") => false,
            // An emulator says that there may be more after every limit that was reached, or not; and begins
            // a page again with the entities of other databases that have the key at which it ended.
            _ => !results.is_empty() && end != page.after.as_ref().map(Cursor::as_str),
        };
        listing.next = end.filter(|_| more).map(Cursor::new);
        Ok(listing.sorted())
    }
}

impl Store for DatastoreStore {
    fn capabilities(&self) -> Capabilities {
        // Not in batches: a commit of several would fail or wait as a whole for the one
        // sequence that others write too.
        Capabilities {
            durability: Durability::Disk,
            retry: RetryCost::Gap,
            batches: false,
            shared: true,
            gives_back: true,
        }
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let reserving = self.change(&request.name, |stored| {
                let mut info = match stored {
                    Some(info) => info,
                    None => schema::fresh(&request.name, request.creation()?),
                };
                let grant = info.grant(request.count, request.ceiling)?;
                Ok((Some(info), grant))
            });
            reserving.await.map_err(|error| error.of(&request.name).during(Operation::Reserve))
        })
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let giving = self.try_give_back(back).await;
            giving.map_err(|error| error.of(&back.name).during(Operation::GiveBack))
        })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            let info = schema::fresh(name, bounds);
            let creating = self.change(name, |stored| match stored {
                // The insert was refused because it had been applied: something on the way sent it twice.
                Some(stored) if stored.identity == info.identity => Ok((Some(stored.clone()), stored)),
                Some(_) => Err(already_exists(name)),
                None => Ok((Some(info.clone()), info.clone())),
            });
            creating.await.map_err(|error| error.of(name).during(Operation::Create))
        })
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async move {
            let stored = self.read(name).await;
            stored
                .map(|stored| stored.map(|stored| stored.info))
                .map_err(|error| error.of(name).during(Operation::Inspect))
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move { self.read_page(page).await.map_err(|error| error.during(Operation::List)) })
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            let setting = self.change(name, |stored| {
                let mut info = stored.ok_or_else(|| not_found(name))?;
                info.apply(&change)?;
                Ok((Some(info.clone()), info))
            });
            setting.await.map_err(|error| error.of(name).during(Operation::Set))
        })
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let removing = self.change(name, |stored| Ok((None, stored.is_some())));
            removing.await.map_err(|error| error.of(name).during(Operation::Remove))
        })
    }
}

/// The longest pause after each conflict in a row.
fn contention() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_secs(1))
        .without_max_times()
}

fn crowded(error: Error) -> Error {
    let message = format!(
        "others changed it each time for {PATIENCE:?} ({error}); use larger steps, so that it is written less often"
    );
    Error::new(ErrorKind::Unavailable, message).because(error)
}
