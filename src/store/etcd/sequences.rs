//! How a sequence is changed: one transaction, on the condition that its key is as it was last seen.
//!
//! # Why a request may be sent twice
//!
//! A key's `mod_revision` is the revision of the write that made it what it is. Every write has a revision of
//! its own, so once a key has been written or deleted, no later state of it has the same `mod_revision`
//! again. A transaction that demands the one that was seen can therefore be applied once at most, however
//! many copies of it are on their way and however late they arrive; and of all transactions that demand the
//! same one, one is applied at most. The value is demanded too, which holds a claim that is random and new
//! with every write: after a restore, the same revision may come again with another value.
//!
//! So a copy that is answered settles what the others did. Applied: the ids are ours. Not applied, and the
//! key holds the bytes that we wrote: an earlier copy was applied, and the ids are ours. Not applied, and it
//! holds something else: no copy can be applied any more, but an earlier one may have been, before others
//! went on from it. That is an unknown outcome, and a gap.
//!
//! That a key is *absent* can be so again and again: it is deleted, and a copy that was late creates it anew
//! with an incarnation that has been in use. So what creates a sequence is sent once. If it is not answered,
//! a read may find the bytes that it wrote.

use std::collections::HashMap;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::Instant;

use super::classify::{Failure, Fate, read_failed, write_failed};
use super::client::{Answered, Client, Resend};
use super::schema::{self, Place, Stored};
use super::wire::{Compare, Delete, Header, Put, Range, Request, Txn, TxnAnswer};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SequenceName;
use crate::store::{Cursor, Listing, Page, SequenceInfo};
use crate::sync::Mutex;

/// How long a change goes on while others are faster each time. None of the tries was applied.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many tries follow each other without a pause. A process that pauses after a conflict comes back
/// with an old state, and loses against the process that has just won and does not pause. A process
/// that tries again at once is as likely to win as the others. The pauses after that protect the
/// cluster from very many of them.
const BURST: u32 = 8;
/// How many sequences are remembered. Of one that is not, a change costs a read more.
const MEMORY: usize = 100_000;

/// The sequences under a prefix.
#[derive(Debug)]
pub(super) struct Sequences {
    client: Client,
    place: Place,
    /// As they were when they were last read or written.
    seen: Mutex<HashMap<SequenceName, Stored>>,
}

/// What became of a transaction.
enum Outcome {
    Applied,
    /// Certainly not applied: this is stored by now.
    Conflict(Option<Stored>),
}

impl Sequences {
    pub(super) fn new(client: Client, place: Place) -> Self {
        Self { client, place, seen: Mutex::default() }
    }

    /// Whether the cluster has shown that it is not the one it was.
    pub(super) fn is_refused(&self) -> bool {
        self.client.guard().floor().is_err()
    }

    /// Asks for what nobody has, to know whether anybody answers.
    pub(super) async fn greet(&self) -> Result<()> {
        let range = Range { key: self.place.first(), ..Range::default() };
        self.client.range(&range).await.map(drop)
    }

    pub(super) async fn read(&self, name: &SequenceName) -> Result<Option<Stored>> {
        let before = self.remembered(name);
        let answer = self.client.range(&self.the_key(name)).await?;
        let stored = answer.kvs.into_iter().next().map(|kv| self.place.decode(kv)).transpose()?;
        self.learn(name, before.as_ref(), stored.clone())?;
        Ok(stored)
    }

    /// Where a page ended is a key.
    pub(super) async fn read_page(&self, page: &Page) -> Result<Listing> {
        let (mut key, end) = self.place.range(page);
        if let Some(after) = &page.after {
            key = after.bytes()?;
            key.push(0);
        }
        let limit = i64::from(page.rows());
        let answer = self.client.range(&Range { key, end, limit }).await?;
        let last = answer.kvs.last().filter(|_| answer.more);
        let mut listing = Listing { next: last.map(|kv| Cursor::of_bytes(&kv.key)), ..Listing::default() };
        for kv in answer.kvs.into_iter().filter(|kv| !self.place.is_deeper(&kv.key)) {
            listing.add(self.place.shown(&kv.key), self.place.decode(kv).map(|stored| stored.info));
        }
        Ok(listing.sorted())
    }

    /// Lets `decide` say what a sequence is to be (`None`: gone), and writes that if it is another. Begins
    /// again when others changed it in between, so `decide` may be called several times: first with what was
    /// last seen of it, but what comes of that is believed only if it was written.
    pub(super) async fn change<R>(
        &self,
        name: &SequenceName,
        resend: Resend,
        decide: impl Fn(Option<SequenceInfo>) -> Result<(Option<SequenceInfo>, R)>,
    ) -> Result<R> {
        let begun = Instant::now();
        let (mut waits, mut conflicts) = (contention().build(), 0);
        let (mut stored, mut is_fresh) = match self.remembered(name) {
            Some(stored) => (Some(stored), false),
            None => (self.read(name).await?, true),
        };
        loop {
            let decided = decide(stored.as_ref().map(|stored| stored.info.clone()));
            let unchanged =
                |wanted: &Option<SequenceInfo>| *wanted == stored.as_ref().map(|stored| stored.info.clone());
            match decided {
                Ok((wanted, outcome)) if !unchanged(&wanted) => {
                    match self.write(name, stored.as_ref(), wanted, resend).await? {
                        Outcome::Applied => return Ok(outcome),
                        Outcome::Conflict(_) if begun.elapsed() > PATIENCE => return Err(crowded()),
                        Outcome::Conflict(current) => {
                            (stored, is_fresh, conflicts) = (current, true, conflicts + 1);
                            if conflicts % BURST == 0 {
                                tokio::time::sleep(waits.next().unwrap_or(PATIENCE).mul_f64(fastrand::f64()))
                                    .await;
                            }
                        }
                    }
                }
                decided if is_fresh => return decided.map(|(_, outcome)| outcome),
                _ => (stored, is_fresh) = (self.read(name).await?, true),
            }
        }
    }

    /// Turns the stored sequence into the wanted one, unless something else is stored.
    async fn write(
        &self,
        name: &SequenceName,
        stored: Option<&Stored>,
        wanted: Option<SequenceInfo>,
        resend: Resend,
    ) -> Result<Outcome> {
        let value = wanted.as_ref().map(schema::encode);
        let txn = self.txn(name, stored, value.as_deref());
        let resend = if stored.is_some() { resend } else { Resend::Never };
        match self.client.txn(&txn, resend).await {
            Ok(answered) => self.outcome(name, stored, wanted.zip(value), answered),
            Err(failure) => self.settle(name, stored, value.as_deref(), failure).await,
        }
    }

    fn txn(&self, name: &SequenceName, stored: Option<&Stored>, value: Option<&[u8]>) -> Txn {
        let key = self.place.key(name).into_bytes();
        let compare = match stored {
            Some(stored) => {
                vec![Compare::modified(&key, stored.mod_revision), Compare::value(&key, &stored.value)]
            }
            None => vec![Compare::absent(&key)],
        };
        let success = match value {
            Some(value) => Request::Put(Put { key, value: value.to_vec() }),
            None => Request::Delete(Delete { key }),
        };
        Txn::new(compare, success, Request::Range(self.the_key(name)))
    }

    fn outcome(
        &self,
        name: &SequenceName,
        stored: Option<&Stored>,
        wanted: Option<(SequenceInfo, Vec<u8>)>,
        answered: Answered<TxnAnswer>,
    ) -> Result<Outcome> {
        let Answered { answer, resent } = answered;
        if answer.succeeded {
            let mod_revision = answer.header.map_or(0, |Header { revision, .. }| revision);
            let now = wanted.map(|(info, value)| Stored { info, value, mod_revision });
            self.learn(name, stored, now)?;
            return Ok(Outcome::Applied);
        }
        let found =
            answer.range().ok_or_else(|| violation("a transaction was answered without what is stored"))?;
        let current = found.kvs.into_iter().next().map(|kv| self.place.decode(kv)).transpose()?;
        self.learn(name, stored, current.clone())?;
        if !resent {
            return Ok(Outcome::Conflict(current));
        }
        match (&current, wanted) {
            (Some(current), Some((_, value))) if current.value == value => Ok(Outcome::Applied),
            _ => Err(Error::new(ErrorKind::UnknownOutcome, OVERTAKEN)),
        }
    }

    /// Finds out what became of a transaction that failed, where a read can tell: of one that was sent once
    /// and not answered, it may find what that wrote; if it does not, that may yet come. Of one whose answer
    /// leaves it open, nothing may come any more.
    async fn settle(
        &self,
        name: &SequenceName,
        stored: Option<&Stored>,
        value: Option<&[u8]>,
        failure: Failure,
    ) -> Result<Outcome> {
        let is_settled = failure.is_settled();
        if !is_settled && (stored.is_some() || failure.fate() != Fate::Open) {
            return Err(write_failed(failure));
        }
        let revision = |stored: Option<&Stored>| stored.map(|stored| stored.mod_revision);
        match self.read(name).await {
            Ok(Some(now)) if Some(now.value.as_slice()) == value => Ok(Outcome::Applied),
            // Unchanged: as little was reserved as by a read.
            Ok(now) if is_settled && revision(now.as_ref()) == revision(stored) => Err(read_failed(failure)),
            Err(error) if error.kind() == ErrorKind::StoreViolation => Err(error),
            _ => Err(write_failed(failure)),
        }
    }

    fn the_key(&self, name: &SequenceName) -> Range {
        Range { key: self.place.key(name).into_bytes(), ..Range::default() }
    }

    fn remembered(&self, name: &SequenceName) -> Option<Stored> {
        self.seen.lock().get(name).cloned()
    }

    /// Remembers what an answer said, unless a newer one came meanwhile. `before` was seen before the request
    /// was sent: a key that was last written earlier than that has gone back.
    fn learn(&self, name: &SequenceName, before: Option<&Stored>, now: Option<Stored>) -> Result<()> {
        let Some(now) = now else {
            self.seen.lock().remove(name);
            return Ok(());
        };
        if let Some(before) = before.filter(|before| now.mod_revision < before.mod_revision) {
            let key = self.place.key(name);
            return Err(self.client.guard().rewind(&key, before.mod_revision, now.mod_revision));
        }
        let mut seen = self.seen.lock();
        if seen.len() >= MEMORY && !seen.contains_key(name) {
            seen.clear();
        }
        let known = seen.entry(name.clone()).or_insert_with(|| now.clone());
        if known.mod_revision < now.mod_revision {
            *known = now;
        }
        Ok(())
    }
}

const OVERTAKEN: &str =
    "the transaction was not answered, and others have changed the sequence since: it may have been applied";

fn violation(message: &'static str) -> Error {
    Error::new(ErrorKind::StoreViolation, message)
}

fn crowded() -> Error {
    let message = format!(
        "others changed it each time for {PATIENCE:?}; use larger steps, so that it is written less often"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// The longest pause after each burst.
fn contention() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(2))
        .with_max_delay(Duration::from_millis(100))
        .without_max_times()
}
