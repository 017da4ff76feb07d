//! Ids from Cassandra, in one datacenter or several: small, unique, ordered, in ranges.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-cassandra).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`CassandraStore`] keeps sequences in Cassandra or ScyllaDB. [`CassandraOptions`] describes the URL.
//!
//! # Flat
//!
//! Each sequence is one partition. A reserve is a conditional write (`IF next = …`). A quorum of all replicas
//! must agree on the write (SERIAL), or a quorum in one datacenter ([`Serial::Local`]).
//!
//! # Geo
//!
//! Each datacenter has a *window* for each sequence. A window is a range from which the datacenter's
//! processes reserve at LOCAL_SERIAL. Once per `check`, a reserve first reads the global counter. When the
//! range runs low, the window preloads a second range from the global counter, which is accessed with SERIAL.
//! [`Sizing`] computes how large a range must be.
//!
//! # Guarantees
//!
//! - A quorum acknowledges a range before any of its ids is handed out. Durability depends on the cluster:
//!   with three replicas, the crash of one machine loses nothing.
//! - A partition always uses one level, SERIAL or LOCAL_SERIAL. Mixing the levels can produce duplicates even
//!   without a fault.
//! - Every insert and update of a flat sequence stores a random number. After an unknown outcome, the write
//!   was applied if the row holds this number. If another write has replaced it, the outcome stays unknown.
//!
//! These guarantees do not hold if a table is restored from a backup (the README describes detection and
//! recovery), or if other programs write to the tables. The guarantees also do not hold if replicas are
//! replaced without the repair that Cassandra requires for lightweight transactions.
//!
//! # Cancellation
//!
//! Any call can be dropped. A request that was already sent may still be applied. Ids that it takes for the
//! caller then become a gap.

mod classify;
mod connection;
mod geo;
mod options;
mod records;
mod reserve;
mod schema;
mod tls;
mod values;

use std::sync::Arc;

use idmill::store::Store;
use idmill::{Operation, Result};
use idmill_kit::Scheme;
use scylla::client::session::Session;

use self::connection::Client;
use self::records::RecordTable;
use self::reserve::SequenceTable;
use self::schema::Table;

pub use self::connection::Serial;
pub use self::options::{CassandraOptions, Mode};
pub use idmill_shared_cache::{RangeSize, Sizing};

pub use idmill;
/// The driver, in the version that [`CassandraStore::from_session`] accepts.
pub use scylla;

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[Scheme::store::<CassandraOptions>("cassandra", "cassandra://HOST/KEYSPACE")];

/// Opens the store at a URL such as `cassandra://HOST/KEYSPACE` and returns its sequences, whose refills run
/// on the current tokio runtime.
///
/// # Errors
/// Returns the errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<CassandraOptions>(url).await
}

/// A store of sequences in a keyspace of a Cassandra or ScyllaDB cluster. See the [crate docs](self) for
/// its guarantees.
///
/// Clones share one session.
#[derive(Clone, Debug)]
pub struct CassandraStore {
    store: Arc<dyn Store>,
    records: Arc<RecordTable>,
}

impl CassandraStore {
    /// Connects to the cluster, and creates the keyspace and the tables if the options allow it. If the
    /// future is dropped, the keyspace and the tables may already have been created.
    ///
    /// # Errors
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid.
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if no node can be reached.
    /// - [`Denied`](idmill::ErrorKind::Denied) if the credentials are wrong or a permission is missing.
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if the keyspace or a table is missing and the options do
    ///   not allow its creation. The message contains the CQL that creates it.
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if a table was not created by this crate or is for
    ///   another consistency level, or if the keyspace has no replicas in the datacenter.
    pub async fn open(options: CassandraOptions) -> Result<Self> {
        let opening = async {
            options.check()?;
            open(Arc::new(options.connect_session().await?), &options).await
        };
        opening.await.map_err(|error| error.during(Operation::Connect))
    }

    /// Opens a store that uses the caller's session, with its addresses, credentials and TLS. The addresses,
    /// credentials and TLS settings of the options must be valid, but are not used. Every statement sets its
    /// own consistency, routing, retries and timeout, and ignores the session's profile.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    pub async fn from_session(session: Arc<Session>, options: CassandraOptions) -> Result<Self> {
        open(session, &options).await.map_err(|error| error.during(Operation::Connect))
    }
}

async fn open(session: Arc<Session>, options: &CassandraOptions) -> Result<CassandraStore> {
    let (datacenter, geo) = (options.datacenter.as_deref(), options.check()?);
    let client = Client::new(session, datacenter, options.timeout);
    let needs = datacenter.filter(|_| geo.is_some() || options.serial == Serial::Local);
    schema::ensure_keyspace(&client, options, needs).await?;
    let table = Table::sequences(&client, options);
    table.ensure(options.create_tables).await?;
    let records = Arc::new(RecordTable::new(table.records(options)?, options.create_tables));
    let windows = table.windows();
    let sequences = SequenceTable::new(table);
    let store: Arc<dyn Store> = match geo {
        None => Arc::new(sequences),
        Some(settings) => {
            windows.ensure(options.create_tables).await?;
            Arc::new(geo::tiered(sequences, windows, settings))
        }
    };
    Ok(CassandraStore { store, records })
}

impl Store for CassandraStore {
    idmill::store_calls!(|this| this.store => capabilities reserve create inspect list set remove);
    idmill::store_calls!(record swap_record list_records);
}
