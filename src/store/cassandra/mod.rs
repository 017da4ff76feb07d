//! Sequences in Cassandra, or ScyllaDB: `cassandra://host,host/keyspace?mode=flat|geo&dc=dc1`.
//!
//! # Flat
//!
//! One partition for each sequence; a reserve is a conditional write (`IF next = …`) that all replicas agree
//! on (SERIAL), or those of one datacenter ([`Serial::Local`]).
//!
//! # Geo
//!
//! Every datacenter has a *window* for each sequence: a range that its processes reserve from at
//! LOCAL_SERIAL, without asking another datacenter, and a second one that is preloaded when the first runs
//! low. Only that asks the global counter, which all datacenters agree on (SERIAL). Cut off from the others,
//! a datacenter goes on for what its window holds, then says what it waits for; [`Sizing`] says how large
//! that has to be. Ids grow within a window, not between datacenters. Nothing of a window's size is ever
//! lost: a range is claimed under a token, and whoever claims under the same one, after a crash or an answer
//! that did not come, gets the same range.
//!
//! # What holds
//!
//! - A range is acknowledged by a quorum before an id of it is handed out. How durable that is says the
//!   cluster: with three replicas, the crash of one machine loses nothing.
//! - A partition is only ever agreed on in one way, by SERIAL or by LOCAL_SERIAL. The tables
//!   say which in their comments, and are refused to who would mix them: mixed, ids are handed
//!   out twice even without a fault.
//! - A conditional write whose outcome is unknown is settled by a random number that only this write has, if
//!   it is still there to be read; else it stays unknown.
//!
//! What Cassandra cannot protect from: a table restored from a backup (see the store's page in the docs for
//! what is noticed and what to do), replicas replaced while writes are agreed on without the repair that
//! Cassandra asks for then, and other programs that write to the tables.
//!
//! # Cancellation
//!
//! Any call may be dropped; what it has sent may still be applied: a gap, at most
//! of what that call asked for.

mod classify;
mod client;
mod geo;
mod options;
mod schema;
mod sequences;
mod values;

use std::sync::Arc;

use scylla::client::session::Session;

use self::client::Client;
use self::geo::GeoSettings;
use self::options::Checked;
use self::schema::Table;
use self::sequences::Sequences;
use super::{
    Bounds, Capabilities, Change, Durability, Grant, Listing, Page, Reserve, RetryCost, SequenceInfo, Store,
    StoreFuture,
};
use crate::error::{Error, Operation, Result};
use crate::name::SequenceName;

pub use self::client::Serial;
pub use self::options::{CassandraOptions, Mode};
pub use crate::tier::{RangeSize, Sizing};
/// The driver, in the version whose sessions [`CassandraStore::from_session`] takes.
pub use scylla;

/// Sequences in a keyspace of a Cassandra or ScyllaDB cluster. See the [module](self) for what holds.
///
/// Clones share one session.
#[derive(Clone, Debug)]
pub struct CassandraStore {
    store: Arc<dyn Store>,
}

impl CassandraStore {
    /// Connects to the cluster and makes sure of keyspace and tables. Dropping the
    /// future can leave them created.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for options that cannot be;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if no node can be reached;
    /// [`Denied`](crate::ErrorKind::Denied);
    /// [`NotFound`](crate::ErrorKind::NotFound) if keyspace or table are missing and not to be created, with
    /// the CQL that creates them; [`Conflict`](crate::ErrorKind::Conflict) if a table is there but not this
    /// crate's, or made for another kind of agreement, or if the keyspace has no replicas in the datacenter.
    pub async fn open(options: CassandraOptions) -> Result<Self> {
        let opening = async {
            let checked = options.check()?;
            let session = options.connect_session().await?;
            open(Arc::new(session), checked).await
        };
        opening.await.map_err(|error| error.during(Operation::Connect))
    }

    /// Uses a session that the caller has: its addresses, credentials and TLS. Those of the options
    /// are not used. Consistency, routing, retries and timeouts are set on every statement, whatever
    /// the session's own profile says.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub async fn from_session(session: Arc<Session>, options: CassandraOptions) -> Result<Self> {
        let opening = async { open(session, options.check()?).await };
        opening.await.map_err(|error| error.during(Operation::Connect))
    }
}

async fn open(session: Arc<Session>, options: Checked) -> Result<CassandraStore> {
    let datacenter = options.datacenter.as_deref();
    let client = Client::new(session, datacenter, options.timeout);
    let local = options.geo.is_some() || options.serial == Serial::Local;
    let needs = datacenter.filter(|_| local);
    schema::ensure_keyspace(&client, &options.keyspace, &options.replicas, needs).await?;
    let table = Table::sequences(&options.keyspace, &options.table, options.serial, datacenter);
    table.ensure(&client, options.create).await?;
    let sequences = Sequences::prepare(client.clone(), table, options.serial).await?;
    let store: Arc<dyn Store> = match options.geo {
        None => Arc::new(Flat::new(sequences)),
        Some(settings) => Arc::new(
            open_geo(client, sequences, &options.keyspace, &options.table, options.create, settings).await?,
        ),
    };
    Ok(CassandraStore { store })
}

async fn open_geo(
    client: Client,
    global: Sequences,
    keyspace: &str,
    table: &str,
    create: bool,
    settings: GeoSettings,
) -> Result<impl Store + 'static> {
    let windows = Table::windows(keyspace, table);
    windows.ensure(&client, create).await?;
    geo::open(client, global, windows, settings).await
}

impl Store for CassandraStore {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        let named = |error: Error| error.of(&request.name).during(Operation::Reserve);
        Box::pin(async move { self.store.reserve(request).await.map_err(named) })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        let named = |error: Error| error.of(name).during(Operation::Create);
        Box::pin(async move { self.store.create(name, bounds).await.map_err(named) })
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        let named = |error: Error| error.of(name).during(Operation::Inspect);
        Box::pin(async move { self.store.inspect(name).await.map_err(named) })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move { self.store.list(page).await.map_err(|error| error.during(Operation::List)) })
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        let named = |error: Error| error.of(name).during(Operation::Set);
        Box::pin(async move { self.store.set(name, change).await.map_err(named) })
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        let named = |error: Error| error.of(name).during(Operation::Remove);
        Box::pin(async move { self.store.remove(name).await.map_err(named) })
    }
}

/// Sequences that are reserved from their one row.
#[derive(Clone, Debug)]
struct Flat {
    sequences: Sequences,
}

impl Flat {
    fn new(sequences: Sequences) -> Self {
        Self { sequences }
    }
}

impl Store for Flat {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::Disk,
            retry: RetryCost::Gap,
            batches: false,
            shared: true,
            gives_back: false,
        }
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(self.sequences.reserve(request))
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(self.sequences.create(name, bounds))
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async move { Ok(self.sequences.read(name).await?.map(|row| row.info)) })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(self.sequences.list(page))
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(self.sequences.set(name, change))
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        Box::pin(self.sequences.remove(name))
    }
}
