//! An in-memory store: the reference implementation of [`Store`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Identity, Listing, Page, Records, Reserve,
    SequenceInfo, Store, StoreFuture, already_exists, not_found, page_of,
};
use crate::error::{Operation, Result};
use crate::name::SequenceName;
use crate::sync::Mutex;

/// An in-memory store, for tests and for ids that need not outlive the process.
///
/// It answers immediately and is never unavailable. Clones share one state, like several connections to one
/// database.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// use idmill::store::MemoryStore;
///
/// let store = MemoryStore::new();
/// let orders = idmill::Sequences::new(store.clone())?.sequence::<u64>("orders").await?;
/// assert_eq!(orders.next().await?, 1);
/// assert_eq!(store.reserves(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stored: Snapshot,
    reserves: u64,
    requests: u64,
}

/// The contents of a [`MemoryStore`] at one moment, like a backup.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    sequences: BTreeMap<SequenceName, SequenceInfo>,
    records: BTreeMap<SequenceName, String>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of reserves; a batch counts once.
    pub fn reserves(&self) -> u64 {
        self.0.lock().reserves
    }

    /// Returns the number of requested ranges; a batch counts each of its requests.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> u64 {
        self.0.lock().requests
    }

    /// Returns a copy of the contents, like a backup.
    pub fn snapshot(&self) -> Snapshot {
        self.0.lock().stored.clone()
    }

    /// Restores a backup, including identities. The store goes back in time and will grant again the ids
    /// granted since. This store cannot detect the restore; `idmill-guard` can.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.0.lock().stored.clone_from(snapshot);
    }

    fn reserve_all(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let mut state = self.0.lock();
        state.reserves += 1;
        state.requests += requests.len() as u64;
        let reserve = |request: &Reserve| {
            let grant = state.stored.reserve(request);
            grant.map_err(|error| error.of(&request.name).during(Operation::Reserve))
        };
        requests.iter().map(reserve).collect()
    }
}

#[allow(clippy::unused_async, reason = "`Store` has async methods")]
impl MemoryStore {
    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        Ok(self.0.lock().stored.sequences.get_mut(&back.name).is_some_and(|stored| stored.take_back(back)))
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let sequences = &mut self.0.lock().stored.sequences;
        if sequences.contains_key(name) {
            return Err(already_exists(name));
        }
        Ok(sequences.entry(name.clone()).or_insert(SequenceInfo::new(name.clone(), bounds)).clone())
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        Ok(self.0.lock().stored.sequences.get(name).cloned())
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let state = self.0.lock();
        let (rows, next) = page_of(&state.stored.sequences, page);
        Ok(Listing::new(rows.into_iter().map(|(_, stored)| stored.clone()).collect(), next))
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let mut state = self.0.lock();
        let stored = state.stored.sequences.get_mut(name).ok_or_else(|| not_found(name))?;
        stored.apply(&change)?;
        Ok(stored.clone())
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let sequences = &mut self.0.lock().stored.sequences;
        sequences.get(name).map_or(Ok(()), |stored| stored.check_identity(expected))?;
        Ok(sequences.remove(name).is_some())
    }

    async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        Ok(self.0.lock().stored.records.get(name).cloned())
    }

    async fn try_swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        let records = &mut self.0.lock().stored.records;
        let holds = records.get(name).map(String::as_str) == seen;
        if holds {
            records.insert(name.clone(), wanted.to_owned());
        }
        Ok(holds)
    }

    async fn try_list_records(&self, page: &Page) -> Result<Records> {
        let state = self.0.lock();
        let (rows, next) = page_of(&state.stored.records, page);
        Ok(Records::new(
            rows.into_iter().map(|(name, record)| (name.clone(), record.clone())).collect(),
            next,
        ))
    }
}

impl Snapshot {
    fn reserve(&mut self, request: &Reserve) -> Result<Grant> {
        if let Some(stored) = self.sequences.get_mut(&request.name) {
            return stored.grant(request.count, request.ceiling);
        }
        let mut created = SequenceInfo::new(request.name.clone(), request.creation()?);
        // Only a reserve that grants something creates its sequence.
        let grant = created.grant(request.count, request.ceiling)?;
        self.sequences.insert(request.name.clone(), created);
        Ok(grant)
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        // Shared, so that code for stores with several processes can be tested with `MemoryStore`.
        Capabilities {
            durability: Durability::Process,
            batches: true,
            shared: true,
            gives_back: true,
            records: true,
        }
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let mut answers = self.reserve_all(std::slice::from_ref(request));
            answers.pop().expect("one answer to each request")
        })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move { self.reserve_all(requests) })
    }

    crate::store_calls!(give_back create inspect list set remove record swap_record list_records);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test]
    async fn identities_change_by_remove_and_reset_not_by_restore() {
        let (store, name) = (MemoryStore::new(), SequenceName::new("s").unwrap());
        let create = Some(Bounds::new(1, 1000).unwrap());
        let request = Reserve { name: name.clone(), count: 10, ceiling: u64::MAX, create };
        let first = store.reserve(&request).await.unwrap();
        let backup = store.snapshot();
        let back = Change { next: Some(1), backwards: true, ..Change::default() };
        assert_eq!(store.set(&name, back).await.unwrap().identity.epoch, 1);
        assert!(store.remove(&name, None).await.unwrap());
        assert!(!store.remove(&name, None).await.unwrap());
        assert_eq!(store.set(&name, back).await.unwrap_err().kind(), ErrorKind::NotFound);
        let again = store.create(&name, Bounds::of::<u64>()).await.unwrap();
        assert_ne!(again.identity.incarnation, first.identity.incarnation);
        let twice = store.create(&name, Bounds::of::<u64>()).await.unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
        store.restore(&backup);
        let late = store.reserve(&request).await.unwrap();
        assert_eq!((late.identity, late.range.start()), (first.identity, 11));
    }
}
