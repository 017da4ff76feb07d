//! Memory stores with one bug each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, MemoryStore, Page, Records, Reserve,
    SequenceInfo, Store, StoreFuture,
};
use idmill::{Error, ErrorKind, IdRange, Result, SequenceName};
use idmill_conformance::Suite;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::patient;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Every tenth reserve grants the previous range again.
    RepeatsAfterAnError,
    /// Reads, and then writes the computed value.
    ReadsThenWrites,
    /// Reports for every tenth successful reserve that nothing was reserved.
    LiesAboutFailures,
    /// Reserves a block for itself, and serves from that.
    HoardsABlock,
    /// Sometimes reserves twice, and loses the first range.
    LosesRanges,
    /// Simultaneous creators get different incarnations.
    CreatesTwice,
    /// Also creates sequences that must exist already.
    CreatesUnasked,
    /// Create replaces an existing sequence.
    CreateReplaces,
    LosesTheLastId,
    GoesBeyondMax,
    IgnoresTheCeiling,
    IgnoresStoredBounds,
    /// Starts again at the end of the sequence.
    Wraps,
    /// Numbers are signed.
    KeepsI64,
    /// Counts have 32 bits.
    KeepsU32Counts,
    CutsNames,
    FoldsCase,
    /// Trims trailing dots and spaces, as file systems do.
    TrimsDots,
    LooksConsume,
    LooksCreate,
    ListOmits,
    ListIsUnsorted,
    /// The first sequence of every later page is missing.
    PagesOmit,
    /// The second page is returned again and again.
    PagesStand,
    PrefixIsIgnored,
    EpochStays,
    IncarnationStays,
    SetIsNotAtomic,
    IgnoresExpect,
    /// Ignores the identity that a removal expects.
    RemovesAnother,
    RemoveIsNotAtomic,
    /// Revokes nothing.
    IgnoresRevoke,
    BatchInWrongOrder,
    BatchFailsTogether,
    BatchLocksInOrder,
    KeepsTheLockWhenDropped,
    DeclaresByChance,
    ExpectsMoreThanItSays,
    NeverTakesBack,
    TakesBackWhateverItIs,
    TakesBackAtAnyTime,
    TakesBackInTwoSteps,
    /// Overwrites a record without comparing it.
    SwapsRecordsBlindly,
    /// Compares a record, and then writes it.
    SwapsRecordsInTwoSteps,
    /// Reports every record as written.
    ClaimsToHaveSwapped,
    /// Keeps records where the sequences are.
    ListsRecordsAsSequences,
    /// Stores one record for all names that differ only in case.
    FoldsRecords,
    /// Records have at most a hundred bytes.
    CutsRecords,
    /// The first record of every later page is missing.
    RecordPagesOmit,
}

#[derive(Clone)]
pub(crate) struct Broken {
    store: MemoryStore,
    bug: Bug,
    state: Arc<State>,
    /// This client's block.
    hoard: Arc<Mutex<Option<Grant>>>,
    number: u64,
}

struct State {
    last: Mutex<Option<Grant>>,
    calls: Mutex<u64>,
    lock: Semaphore,
    locks: [tokio::sync::Mutex<()>; 16],
    removed: Mutex<std::collections::HashMap<SequenceName, Identity>>,
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.bug, f)
    }
}

/// The suite of a store with this bug.
pub(crate) fn suite(bug: Bug) -> Suite {
    let locks = std::array::from_fn(|_| tokio::sync::Mutex::default());
    let state = State {
        last: Mutex::default(),
        calls: Mutex::default(),
        lock: Semaphore::new(1),
        locks,
        removed: Mutex::default(),
    };
    let (store, state, clients) = (MemoryStore::new(), Arc::new(state), Mutex::new(0));
    let connect = move |_| {
        *clients.lock() += 1;
        let number = *clients.lock();
        let (store, state) = (store.clone(), state.clone());
        let client: Arc<dyn Store> = Arc::new(Broken { store, bug, state, hoard: Arc::default(), number });
        async move { Ok(client) }
    };
    let timeouts = match bug {
        // These bugs show as a call that never returns.
        Bug::BatchLocksInOrder | Bug::KeepsTheLockWhenDropped => patient().call(Duration::from_secs(2)),
        _ => patient(),
    };
    Suite::new(format!("{bug:?}"), connect).one_process("in memory").timeouts(timeouts)
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "busy")
}

impl Broken {
    fn every(&self, nth: u64) -> bool {
        let mut calls = self.state.calls.lock();
        *calls += 1;
        calls.is_multiple_of(nth)
    }

    fn renamed(&self, name: &SequenceName) -> SequenceName {
        let text = match self.bug {
            Bug::CutsNames => name.chars().take(63).collect(),
            Bug::FoldsCase => name.to_lowercase(),
            Bug::TrimsDots => match name.trim_end_matches('.') {
                "" => name.to_string(),
                trimmed => trimmed.to_owned(),
            },
            _ => return name.clone(),
        };
        SequenceName::new(text.trim()).unwrap()
    }

    fn of_record(&self, name: &SequenceName) -> SequenceName {
        match self.bug {
            Bug::FoldsRecords => SequenceName::new(&name.to_lowercase()).unwrap(),
            _ => name.clone(),
        }
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn reserve(&self, request: &Reserve) -> Result<Grant> {
        match self.bug {
            Bug::RepeatsAfterAnError if self.every(10) => {
                self.state.last.lock().take().map_or_else(|| Err(unavailable()), Ok)
            }
            Bug::LiesAboutFailures if self.every(10) => {
                self.store.reserve(request).await?;
                Err(unavailable())
            }
            Bug::ReadsThenWrites => self.read_then_write(request).await,
            Bug::CreatesTwice if self.store.inspect(&request.name).await?.is_none() => {
                self.pause().await;
                self.store.remove(&request.name, None).await?;
                self.store.reserve(request).await
            }
            Bug::CreatesUnasked => {
                let create = request.create.or(Some(Bounds::of::<u64>()));
                self.store.reserve(&request.clone().create(create)).await
            }
            Bug::HoardsABlock => self.hoarded(request).await,
            Bug::LosesRanges if self.every(10) => {
                self.store.reserve(request).await?;
                self.store.reserve(request).await
            }
            Bug::IgnoresTheCeiling => self.store.reserve(&request.clone().ceiling(u64::MAX)).await,
            Bug::KeepsU32Counts => {
                self.store.reserve(&request.clone().count((request.count & 0xffff_ffff).max(1))).await
            }
            Bug::KeepsTheLockWhenDropped => {
                let permit = self.state.lock.acquire().await.unwrap();
                permit.forget();
                self.pause().await;
                let grant = self.store.reserve(request).await;
                self.state.lock.add_permits(1);
                grant
            }
            Bug::LooksConsume | Bug::LooksCreate => self.store.reserve(request).await,
            _ => self.edited(request).await,
        }
    }

    /// Returns a falsified grant.
    async fn edited(&self, request: &Reserve) -> Result<Grant> {
        let before = self.store.inspect(&request.name).await?;
        let grant = match self.store.reserve(request).await {
            Err(error) if error.kind() == ErrorKind::Exhausted && self.bug == Bug::Wraps => {
                let start = before.map_or(1, |info| info.bounds.start());
                let change = Change::new().next(start).backwards(true);
                self.store.set(&request.name, change).await?;
                self.store.reserve(request).await
            }
            outcome => outcome,
        }?;
        *self.state.last.lock() = Some(grant);
        let (range, bounds) = (grant.range, grant.bounds);
        let at_end = range.end() == u128::from(bounds.max()) + 1;
        let shorter = |range: IdRange| IdRange::new(range.start(), range.len() - 1).unwrap();
        match self.bug {
            Bug::LosesTheLastId if at_end && range.len() == 1 => {
                Err(Error::new(ErrorKind::Exhausted, "no more"))
            }
            Bug::LosesTheLastId if at_end => Ok(grant.range(shorter(range))),
            Bug::GoesBeyondMax if at_end => {
                Ok(IdRange::new(range.start(), range.len() + 1).map_or(grant, |range| grant.range(range)))
            }
            Bug::IgnoresStoredBounds if range.start() == bounds.start() => {
                let create = request.creation()?;
                let range = IdRange::new(create.start(), range.len()).unwrap();
                Ok(Grant::new(range, grant.identity, create))
            }
            Bug::EpochStays => {
                Ok(Grant::new(grant.range, Identity { epoch: 0, ..grant.identity }, grant.bounds))
            }
            Bug::IncarnationStays => {
                let incarnation = self
                    .state
                    .removed
                    .lock()
                    .get(&request.name)
                    .map_or(grant.identity.incarnation, |one| one.incarnation);
                Ok(Grant::new(grant.range, Identity { incarnation, ..grant.identity }, grant.bounds))
            }
            Bug::ExpectsMoreThanItSays if range.len() < request.count => {
                Err(Error::new(ErrorKind::Exhausted, "all or nothing"))
            }
            _ => Ok(grant),
        }
    }

    async fn read_then_write(&self, request: &Reserve) -> Result<Grant> {
        let Some(mut info) = self.store.inspect(&request.name).await? else {
            return self.store.reserve(request).await;
        };
        let grant = info.grant(request.count, request.ceiling)?;
        self.pause().await;
        let change = Change::new().next(info.next);
        match self.store.set(&request.name, change).await {
            Ok(_) => Ok(grant),
            Err(_) => Err(unavailable()),
        }
    }

    async fn hoarded(&self, request: &Reserve) -> Result<Grant> {
        let hoard = self.hoard.lock().take();
        let mut grant = match hoard {
            Some(grant) if !grant.range.is_empty() => grant,
            _ => self.store.reserve(&request.clone().count(10_000)).await?,
        };
        let range = grant.range.take_front(request.count);
        *self.hoard.lock() = Some(grant);
        Ok(grant.range(range))
    }
}

impl Store for Broken {
    fn capabilities(&self) -> Capabilities {
        let declared = self.store.capabilities();
        let batches =
            declared.batches && (self.bug != Bug::DeclaresByChance || self.number.is_multiple_of(2));
        declared.batches(batches)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        let mut request = request.clone();
        request.name = self.renamed(&request.name);
        Box::pin(async move { Broken::reserve(self, &request).await })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let mut guards = Vec::new();
            if self.bug == Bug::BatchLocksInOrder {
                for request in requests {
                    let at = request.name.bytes().map(usize::from).sum::<usize>() % 16;
                    guards.push(self.state.locks[at].lock().await);
                    self.pause().await;
                }
            }
            let mut answers = Vec::new();
            for request in requests {
                answers.push(Store::reserve(self, request).await);
            }
            match self.bug {
                Bug::BatchInWrongOrder => answers.reverse(),
                Bug::BatchFailsTogether if answers.iter().any(Result::is_err) => {
                    answers = answers.iter().map(|_| Err(unavailable())).collect();
                }
                _ => {}
            }
            answers
        })
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let mut back = back.clone();
            match self.bug {
                Bug::NeverTakesBack => return Ok(false),
                Bug::TakesBackWhateverItIs | Bug::TakesBackInTwoSteps => {
                    let Some(mut info) = self.store.inspect(&back.name).await? else { return Ok(false) };
                    if !info.take_back(&back) && self.bug == Bug::TakesBackInTwoSteps {
                        return Ok(false);
                    }
                    self.pause().await;
                    // The current end.
                    let end = self.store.inspect(&back.name).await?.and_then(|info| info.next).unwrap_or(0);
                    let len = end.saturating_sub(back.rest.start());
                    back.rest = IdRange::new(back.rest.start(), len).unwrap();
                }
                Bug::TakesBackAtAnyTime => {
                    let Some(info) = self.store.inspect(&back.name).await? else { return Ok(false) };
                    back.identity = info.identity;
                }
                _ => {}
            }
            self.store.give_back(&back).await
        })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        let name = self.renamed(name);
        Box::pin(async move {
            if self.bug == Bug::CreateReplaces {
                self.store.remove(&name, None).await?;
            }
            let max = if self.bug == Bug::KeepsI64 {
                bounds.max().min(i64::MAX.unsigned_abs())
            } else {
                bounds.max()
            };
            self.store.create(&name, Bounds::new(bounds.start().min(max), max)?).await
        })
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        let renamed = self.renamed(name);
        Box::pin(async move {
            let info = self.store.inspect(&renamed).await?;
            match (&info, self.bug) {
                (Some(found), Bug::LooksConsume) => {
                    let create = Some(found.bounds);
                    let request = Reserve::new(renamed, 1).create(create);
                    let _ = self.store.reserve(&request).await;
                }
                (None, Bug::LooksCreate) => {
                    self.store.create(&renamed, Bounds::of::<u64>()).await?;
                }
                _ => {}
            }
            Ok(info.map(|mut info| {
                info.name = name.clone();
                info
            }))
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            let mut page = page.clone();
            if self.bug == Bug::PrefixIsIgnored {
                page.prefix.clear();
            }
            let mut list = self.store.list(&page).await?;
            match self.bug {
                // Simulate a store that returns only the first page.
                Bug::ListOmits => list.sequences.truncate(20),
                Bug::ListIsUnsorted => list.sequences.sort_by_key(|info| info.identity.incarnation),
                Bug::PagesOmit if page.after.is_some() => drop(list.sequences.drain(..1)),
                Bug::PagesStand => list.next = page.after.or(list.next),
                _ => {}
            }
            Ok(list)
        })
    }

    fn list_all(&self) -> StoreFuture<'_, Result<Vec<SequenceInfo>>> {
        Box::pin(async move {
            let page = Page::default().limit(usize::MAX);
            Ok(self.list(&page).await?.sequences)
        })
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        let name = self.renamed(name);
        Box::pin(async move {
            let mut change = change;
            if self.bug == Bug::IgnoresExpect {
                change.expect = None;
            }
            change.revoke &= self.bug != Bug::IgnoresRevoke;
            if self.bug == Bug::SetIsNotAtomic {
                let mut info =
                    self.store.inspect(&name).await?.ok_or_else(|| Error::from(ErrorKind::NotFound))?;
                info.apply(&change)?;
                self.pause().await;
                return self.store.set(&name, change.expect(None).backwards(true)).await;
            }
            let mut info = self.store.set(&name, change).await?;
            let epoch = if self.bug == Bug::EpochStays { 0 } else { info.identity.epoch };
            info.identity.epoch = epoch;
            Ok(info)
        })
    }

    fn remove<'a>(
        &'a self,
        name: &'a SequenceName,
        expected: Option<Identity>,
    ) -> StoreFuture<'a, Result<bool>> {
        let name = self.renamed(name);
        Box::pin(async move {
            let found = self.store.inspect(&name).await?;
            if let Some(info) = &found {
                self.state.removed.lock().insert(name.clone(), info.identity);
            }
            match self.bug {
                Bug::RemovesAnother => return self.store.remove(&name, None).await,
                Bug::RemoveIsNotAtomic => {
                    found.map_or(Ok(()), |info| info.check_identity(expected))?;
                    self.pause().await;
                    return self.store.remove(&name, None).await;
                }
                _ => {}
            }
            self.store.remove(&name, expected).await
        })
    }

    fn record<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<String>>> {
        let name = self.of_record(name);
        Box::pin(async move { self.store.record(&name).await })
    }

    fn swap_record<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a str>,
        wanted: &'a str,
    ) -> StoreFuture<'a, Result<bool>> {
        let name = self.of_record(name);
        Box::pin(async move {
            let kept = self.store.record(&name).await?;
            match self.bug {
                Bug::SwapsRecordsInTwoSteps if kept.as_deref() != seen => return Ok(false),
                Bug::SwapsRecordsBlindly | Bug::SwapsRecordsInTwoSteps => {
                    self.pause().await;
                    let kept = self.store.record(&name).await?;
                    return self.store.swap_record(&name, kept.as_deref(), wanted).await;
                }
                Bug::ListsRecordsAsSequences if kept.is_none() => {
                    drop(self.store.create(&name, Bounds::of::<u64>()).await);
                }
                _ => {}
            }
            let wanted = if self.bug == Bug::CutsRecords { &wanted[..wanted.len().min(100)] } else { wanted };
            let swapped = self.store.swap_record(&name, seen, wanted).await?;
            Ok(swapped || self.bug == Bug::ClaimsToHaveSwapped)
        })
    }

    fn list_records<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Records>> {
        Box::pin(async move {
            let mut records = self.store.list_records(page).await?;
            if self.bug == Bug::RecordPagesOmit && page.after.is_some() {
                drop(records.records.drain(..1));
            }
            Ok(records)
        })
    }
}
