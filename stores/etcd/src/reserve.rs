//! Changes a sequence in one transaction, on condition that its key is unchanged since the last read.
//!
//! # Why resending is safe
//!
//! A key's `mod_revision` is the revision of its last write. Every write has its own revision, so after a key
//! is written or deleted, no later state has the same `mod_revision`. A transaction that requires a given
//! `mod_revision` is therefore applied at most once, however many copies are sent and however late they
//! arrive. If several transactions require the same `mod_revision`, at most one of them is applied. A
//! transaction also requires the key's value. The value contains a claim that is random and new for every
//! write: after a restore, the same revision may be assigned again, but with another value.
//!
//! So the answer to one copy settles the others. If that copy was applied, the ids are ours. If it was not
//! applied and the key holds our bytes, an earlier copy was applied, and the ids are ours. If the key holds
//! something else, no copy can be applied any more, but an earlier one may have been applied before other
//! writes. The outcome is then unknown, and the range may become a gap.
//!
//! A key can be *absent* again: after a delete, a late copy could create it again with an incarnation that
//! was already used. So a transaction that creates a sequence is sent once. If it is not answered, a read
//! may find the bytes that it wrote.

use idmill::store::{Capabilities, Durability, Listing, Page, SequenceInfo, StoreFuture};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::{Asked, CompareAndSet, Fill, Remembered, Resend, Swapped, Versioned, paging};

use super::classify::{Fate, Fault, OVERTAKEN, failed, fate, is_settled};
use super::connection::{Answered, Client};
use super::schema::{self, Prefix, Stored, Version};
use super::wire::{Compare, Delete, Header, KeyValue, Put, Range, Request, Txn, TxnAnswer};

/// The sequences under a prefix.
#[derive(Debug)]
pub(super) struct SequenceKeys {
    pub(super) client: Client,
    prefix: Prefix,
    pub(super) records: Prefix,
    seen: Remembered<Version>,
}

impl SequenceKeys {
    pub(super) fn new(client: Client, prefix: Prefix) -> Self {
        let records = prefix.of_records();
        Self { client, prefix, records, seen: Remembered::default() }
    }

    /// Whether the cluster was found to have gone back in time.
    pub(super) fn is_refused(&self) -> bool {
        self.client.guard.floor().is_err()
    }

    /// The cluster that answered first, as the text of `Store::server`; answers from other clusters are
    /// rejected.
    pub(super) fn cluster(&self) -> Option<String> {
        Some(format!("etcd cluster {:x}", self.client.guard.cluster()?))
    }

    /// Reads a key that never exists, to check that the cluster answers.
    pub(super) async fn greet(&self) -> Result<()> {
        let range = Range { key: self.prefix.first(), ..Range::default() };
        self.client.range(&range).await.map(drop)
    }

    async fn look_up(&self, name: &SequenceName) -> Result<Option<Stored>> {
        let before = self.remembered(name);
        let answer = self.client.range(&self.prefix.the_key(name)).await?;
        let stored = answer.kvs.into_iter().next().map(|kv| self.prefix.decode(kv)).transpose()?;
        self.learn(name, before.as_ref(), stored.clone())?;
        Ok(stored)
    }

    /// Reads a page. The page's cursor is a key.
    pub(super) async fn listed<P: Fill>(
        &self,
        prefix: &Prefix,
        page: &Page,
        decode: impl Fn(KeyValue) -> Result<P::Row>,
    ) -> Result<P> {
        let answer = self.client.range(&prefix.page(page)?).await?;
        let next = answer.kvs.last().filter(|_| answer.more).map(|kv| paging::cursor(&kv.key));
        let kvs = answer.kvs.into_iter().filter(|kv| !prefix.is_deeper(&kv.key));
        Ok(P::of(next, kvs.map(|kv| (prefix.shown(&kv.key), decode(kv)))))
    }

    /// Replaces the stored sequence with the wanted one if it is unchanged.
    async fn write(
        &self,
        name: &SequenceName,
        stored: Option<&Stored>,
        wanted: Option<SequenceInfo>,
        resend: Resend,
    ) -> Result<Swapped<Version>> {
        let value = wanted.as_ref().map(schema::encode);
        let txn = self.txn(name, stored, value.as_deref());
        match self.client.txn(&txn, resend).await {
            Ok(answered) => self.outcome(name, stored, wanted.zip(value), answered),
            Err(fault) => self.settle(name, stored, value.as_deref(), fault).await,
        }
    }

    fn txn(&self, name: &SequenceName, stored: Option<&Stored>, value: Option<&[u8]>) -> Txn {
        let key = self.prefix.key(name).into_bytes();
        let compare = match stored {
            Some(Versioned { version: Version { value, mod_revision }, .. }) => {
                vec![Compare::modified(&key, *mod_revision), Compare::value(&key, value)]
            }
            None => vec![Compare::absent(&key)],
        };
        let success = match value {
            Some(value) => Request::Put(Put { key, value: value.to_vec() }),
            None => Request::Delete(Delete { key }),
        };
        Txn::new(compare, success, Request::Range(self.prefix.the_key(name)))
    }

    fn outcome(
        &self,
        name: &SequenceName,
        stored: Option<&Stored>,
        wanted: Option<(SequenceInfo, Vec<u8>)>,
        answered: Answered<TxnAnswer>,
    ) -> Result<Swapped<Version>> {
        let Answered { answer, resent } = answered;
        if answer.succeeded {
            let mod_revision = answer.header.map_or(0, |Header { revision, .. }| revision);
            let now =
                wanted.map(|(info, value)| Versioned { info, version: Version { value, mod_revision } });
            self.learn(name, stored, now)?;
            return Ok(Swapped::Done);
        }
        let current = answer.found()?.into_iter().next().map(|kv| self.prefix.decode(kv)).transpose()?;
        self.learn(name, stored, current.clone())?;
        if !resent {
            return Ok(Swapped::Now(current));
        }
        match (&current, wanted) {
            (Some(current), Some((_, value))) if current.version.value == value => Ok(Swapped::Done),
            _ => Err(Error::new(ErrorKind::UnknownOutcome, OVERTAKEN)),
        }
    }

    /// Settles a failed transaction by a read, if possible. If a transaction that creates a sequence was not
    /// answered, the read may find its bytes; otherwise, the transaction may still be applied later. After a
    /// full-database error, the transaction cannot be applied later.
    async fn settle(
        &self,
        name: &SequenceName,
        stored: Option<&Stored>,
        value: Option<&[u8]>,
        fault: Fault,
    ) -> Result<Swapped<Version>> {
        let is_settled = is_settled(&fault);
        if !is_settled && (stored.is_some() || fate(&fault) != Fate::Open) {
            return Err(failed(fault, Asked::Write));
        }
        let revision = |stored: Option<&Stored>| stored.map(|stored| stored.version.mod_revision);
        match self.look_up(name).await {
            Ok(Some(now)) if Some(now.version.value.as_slice()) == value => Ok(Swapped::Done),
            // Unchanged: nothing was reserved.
            Ok(now) if is_settled && revision(now.as_ref()) == revision(stored) => {
                Err(failed(fault, Asked::Read))
            }
            Err(error) if error.kind() == ErrorKind::StoreViolation => Err(error),
            _ => Err(failed(fault, Asked::Write)),
        }
    }

    /// Caches an answer unless a newer one arrived in between. `before` was cached before the request was
    /// sent: if the key now has a lower revision than `before`, the cluster went back.
    fn learn(&self, name: &SequenceName, before: Option<&Stored>, now: Option<Stored>) -> Result<()> {
        let revision = |stored: &Stored| stored.version.mod_revision;
        if let (Some(before), Some(now)) = (before.map(revision), now.as_ref().map(revision))
            && now < before
        {
            return Err(self.client.guard.rewind(&self.prefix.key(name), before, now));
        }
        self.seen.learn_if(name, now, |known, now| revision(known) < revision(now));
        Ok(())
    }
}

impl CompareAndSet for SequenceKeys {
    type Version = Version;

    fn can(&self) -> Capabilities {
        // `batches` is off: a transaction's conditions hold or fail together, so all would fail for one
        // contended sequence.
        Capabilities::new(Durability::Disk).shared(true).gives_back(true).records(true)
    }

    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Stored>>> {
        Box::pin(self.look_up(name))
    }

    fn remembered(&self, name: &SequenceName) -> Option<Stored> {
        self.seen.get(name)
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Stored>,
        wanted: Option<&'a SequenceInfo>,
        resend: Resend,
    ) -> StoreFuture<'a, Result<Swapped<Version>>> {
        Box::pin(self.write(name, seen, wanted.cloned(), resend))
    }

    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            let decode = |kv| Ok(self.prefix.decode(kv)?.info);
            Ok(self.listed::<Listing>(&self.prefix, page, decode).await?.sorted())
        })
    }
}
