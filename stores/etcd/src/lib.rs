//! Ids from etcd: small, unique, ordered, in ranges.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-etcd).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`EtcdStore`] keeps sequences in etcd. [`EtcdOptions`] describes the URL.
//!
//! # Guarantees
//!
//! The guide describes durability, when a transaction is sent again, and how the store detects an etcd that
//! went back in time. If repeating a transaction does not settle its outcome, the error is
//! [`UnknownOutcome`](ErrorKind::UnknownOutcome). If an answer is older than an earlier one, or from
//! another cluster, the error is [`StoreViolation`](ErrorKind::StoreViolation).
//!
//! # Cancellation
//!
//! A call that is dropped before its transaction is sent has no effect. If the call is dropped later, the
//! transaction may be applied, and the reserved range becomes a gap.

mod classify;
mod connection;
mod guard;
mod options;
mod records;
mod reserve;
mod schema;
mod wire;

use std::sync::Arc;

#[cfg(doc)]
use idmill::ErrorKind;
use idmill::store::{Change, SequenceInfo, Store, StoreFuture};
use idmill::{Operation, Result, SequenceName};
use idmill_kit::{Scheme, Swapping};

use self::connection::Client;
use self::reserve::SequenceKeys;
use self::schema::Prefix;

pub use self::options::EtcdOptions;
pub use idmill;

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[Scheme::store::<EtcdOptions>("etcd", "etcd://HOST:PORT")];

/// Opens the store at a URL such as `etcd://HOST:PORT` and returns its sequences, whose refills run on the
/// current tokio runtime.
///
/// # Errors
/// Returns the errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<EtcdOptions>(url).await
}

/// A store of sequences under a prefix of an etcd cluster. See the [crate docs](self) for its guarantees.
///
/// Clones share their connections and their state about the cluster.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    sequences: Arc<SequenceKeys>,
    options: Arc<EtcdOptions>,
}

impl EtcdStore {
    /// Opens a cluster. Reads once, to find problems early. Creates nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if an option is invalid; [`Denied`](ErrorKind::Denied) for a
    /// wrong password or missing rights; [`NotFound`](ErrorKind::NotFound) if a certificate file is missing;
    /// [`Unsupported`](ErrorKind::Unsupported) if the server is not etcd;
    /// [`Unavailable`](ErrorKind::Unavailable) if no member can be reached, or if the cluster has no leader.
    pub async fn open_with(options: EtcdOptions) -> Result<Self> {
        Self::open(options).await.map_err(|error| error.during(Operation::Connect))
    }

    async fn open(options: EtcdOptions) -> Result<Self> {
        options.check()?;
        let sequences = begin(&options)?;
        sequences.greet().await?;
        Ok(Self { sequences: Arc::new(sequences), options: Arc::new(options) })
    }
}

/// Creates a [`SequenceKeys`] that has received no answer from the cluster yet.
fn begin(options: &EtcdOptions) -> Result<SequenceKeys> {
    Ok(SequenceKeys::new(Client::new(options)?, Prefix::new(options.prefix.clone())))
}

/// Whether the change only raises `next`, and perhaps the epoch. Such a change is safe even if the cluster
/// went back.
fn only_raises(change: &Change) -> bool {
    change.next.is_some() && change.max.is_none() && !change.backwards
}

impl EtcdStore {
    /// On a cluster that went back, only raising `next` is allowed. A raised `next` keeps processes that did
    /// not detect the rollback from repeating ids.
    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        if only_raises(&change) && self.sequences.is_refused() {
            return Swapping(&begin(&self.options)?).set(name, change).await;
        }
        Swapping(&*self.sequences).set(name, change).await
    }
}

impl Store for EtcdStore {
    idmill::store_calls!(|this| Swapping(&*this.sequences) =>
        capabilities reserve give_back create inspect list remove);
    idmill::store_calls!(set record swap_record list_records);

    fn server(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(self.sequences.cluster()) })
    }
}
