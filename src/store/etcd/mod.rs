//! Sequences in etcd:
//! `etcd://[USER:PASSWORD@]HOST:PORT,…?prefix=/idmill/&timeout=5s&tls=true&ca=FILE&cert=FILE&key=FILE`.
//!
//! # What holds
//!
//! - **Durable**: etcd answers a transaction once a majority of its members has it on disk.
//! - **Shared**: any number of processes may reserve. A change is one transaction, on the condition that
//!   the key is as it was last seen; the loser is told what is stored in the same answer. Without
//!   contention a reserve is one round trip.
//! - **Honest**: a transaction that was not answered is sent again, to any member, since its condition can
//!   hold only once; if that does not settle what became of it, it is an
//!   [`UnknownOutcome`](ErrorKind::UnknownOutcome). What creates a sequence is sent once.
//! - **Guarded**: an answer from before one that was seen earlier, or of another cluster, is a
//!   [`StoreViolation`](ErrorKind::StoreViolation): etcd was restored from a backup, or is another
//!   one. See `docs/stores/etcd.md`.
//!
//! # Cancellation
//!
//! A call that is dropped before its transaction was sent does nothing; after that it may be applied, and
//! the range it reserved is a gap.

mod classify;
mod client;
mod guard;
mod options;
mod schema;
mod sequences;
mod wire;

use self::client::{Client, Resend};
use self::schema::Place;
use self::sequences::Sequences;
use super::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Listing, Page, Reserve, RetryCost,
    SequenceInfo, Store, StoreFuture, already_exists, not_found,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Operation, Result};
use crate::name::SequenceName;
use crate::sync::Arc;

pub use self::options::EtcdOptions;

/// Sequences under a prefix of an etcd cluster. See the [module](self) for what holds.
///
/// Clones share their connections, and what they know of the cluster.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    sequences: Arc<Sequences>,
    options: Arc<EtcdOptions>,
}

impl EtcdStore {
    /// Opens a cluster. Reads once, so that what is wrong is known now; creates nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that cannot be; [`Denied`](ErrorKind::Denied)
    /// for a wrong password or missing rights; [`NotFound`](ErrorKind::NotFound) for a file of certificates
    /// that is not there; [`Unsupported`](ErrorKind::Unsupported) if that is no etcd;
    /// [`Unavailable`](ErrorKind::Unavailable) if no member can be reached, or they have no leader.
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

/// The sequences as they are now: nothing is known of the cluster yet.
fn begin(options: &EtcdOptions) -> Result<Sequences> {
    Ok(Sequences::new(Client::new(options)?, Place::new(options.prefix.clone())))
}

/// Whether it does no more than raise `next`. That is safe whatever the cluster has lost.
fn only_raises(change: &Change) -> bool {
    change.next.is_some() && change.max.is_none() && !change.backwards
}

async fn set(sequences: &Sequences, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
    let setting = sequences.change(name, Resend::Harmless, |stored| {
        let mut info = stored.ok_or_else(|| not_found(name))?;
        info.apply(&change)?;
        Ok((Some(info.clone()), info))
    });
    setting.await
}

impl Store for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        // A gap where a lost reserve was applied and others went on from it before it could be looked for.
        // Not in batches: a transaction's conditions hold together or not at all, so all would fail for the
        // one sequence that others write.
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
            let reserving = self.sequences.change(&request.name, Resend::Harmless, |stored| {
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
            let giving = self.sequences.change(&back.name, Resend::Never, |stored| {
                let Some(mut info) = stored else { return Ok((None, false)) };
                let taken = info.take_back(back);
                Ok((Some(info), taken))
            });
            giving.await.map_err(|error| error.of(&back.name).during(Operation::GiveBack))
        })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            let creating = self.sequences.change(name, Resend::Never, |stored| {
                if stored.is_some() {
                    return Err(already_exists(name));
                }
                let info = schema::fresh(name, bounds);
                Ok((Some(info.clone()), info))
            });
            creating.await.map_err(|error| error.of(name).during(Operation::Create))
        })
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async move {
            let stored = self.sequences.read(name).await;
            stored
                .map(|stored| stored.map(|stored| stored.info))
                .map_err(|error| error.of(name).during(Operation::Inspect))
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            self.sequences.read_page(page).await.map_err(|error| error.during(Operation::List))
        })
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            // A cluster that went back is believed in nothing but this: what keeps others, who know less,
            // from repeating ids.
            let outcome = if only_raises(&change) && self.sequences.is_refused() {
                set(&begin(&self.options)?, name, change).await
            } else {
                set(&self.sequences, name, change).await
            };
            outcome.map_err(|error| error.of(name).during(Operation::Set))
        })
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let removing =
                self.sequences.change(name, Resend::Harmless, |stored| Ok((None, stored.is_some())));
            removing.await.map_err(|error| error.of(name).during(Operation::Remove))
        })
    }
}
