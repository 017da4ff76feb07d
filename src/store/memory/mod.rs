//! Sequences in memory: the reference implementation of [`Store`], and the one
//! that tests are written against.

mod faults;
mod state;

use std::sync::Arc;
use std::time::Duration;

use crate::sync::Mutex;

use self::faults::{injected, named};
use self::state::State;
use super::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Listing, Page, Records, Reserve, SequenceInfo,
    Store, StoreFuture,
};
use crate::error::{ErrorKind, Operation, Result};
use crate::name::SequenceName;

pub use self::faults::{Fault, Faults};
pub use self::state::Snapshot;

/// A store in memory, for tests and for ids that need not outlive the process.
///
/// Clones share one state, as several connections to one database do. Faults, latency and counters are there
/// for testing what is built on a store; see [`Faults`].
///
/// A call's latency is spent half before it is applied and half after, so that dropping its
/// future can find it in either state, as with a database over a network. Cancelling a call
/// therefore may or may not have applied it.
///
/// ```
/// # async fn demo() -> idmill::Result<()> {
/// use idmill::store::{Fault, Faults, MemoryStore};
///
/// let store = MemoryStore::with_faults(Faults::none().script([Fault::LostReply]));
/// // … build an allocator on `store.clone()`; its first reserve is applied, but it never learns of it.
/// store.set_faults(Faults::outage());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

impl MemoryStore {
    /// An empty store that answers at once and never fails.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with faults.
    pub fn with_faults(faults: Faults) -> Self {
        let store = Self::new();
        store.set_faults(faults);
        store
    }

    /// Records every grant from now on, for [`granted`](Self::granted). Off unless asked for, since the
    /// record grows with every reserve.
    #[must_use]
    pub fn recording(self) -> Self {
        self.state.lock().recording = true;
        self
    }

    /// Replaces the faults, for this store and all its clones. Calls under way keep the fault they met, and
    /// calls that hang go on hanging.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Adds a fault to the end of the script: one of the next reserves meets it.
    pub fn push_fault(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Lets every reserve of one sequence fail, without applying it, until
    /// [`heal_sequence`](Self::heal_sequence).
    pub fn fail_sequence(&self, name: &str, kind: ErrorKind) {
        self.state.lock().failing.insert(name.to_owned(), kind);
    }

    /// Ends what [`fail_sequence`](Self::fail_sequence) began.
    pub fn heal_sequence(&self, name: &str) {
        self.state.lock().failing.remove(name);
    }

    /// How many reserves were begun: round trips, so a batch counts once.
    pub fn reserves(&self) -> u64 {
        self.state.lock().reserves
    }

    /// For how many sequences ranges were asked: a batch counts each of its requests.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// Every grant of a sequence that was applied, in order, including those whose reply was
    /// lost, less what was given back; empty unless [`recording`](Self::recording). Nonsense that
    /// a fault made up is not among them.
    pub fn granted(&self, name: &str) -> Vec<Grant> {
        self.state.lock().granted.get(name).cloned().unwrap_or_default()
    }

    /// Everything stored, as a backup would have it.
    pub fn snapshot(&self) -> Snapshot {
        self.state.lock().snapshot()
    }

    /// Puts a backup back, identities and all: the store goes back in time, and will grant again what it
    /// granted since. This is what guards against, and what no store can notice of itself.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.state.lock().restore(snapshot);
    }

    /// One reserve of one or many sequences: a single round trip with a single fault.
    async fn round_trip(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let (fault, latency) = self.state.lock().begin_reserve(requests.len());
        let (before, after) = halves(latency);
        pause(before).await;
        let answer = match fault {
            None | Some(Fault::Latency(_)) => self.apply(requests),
            Some(Fault::LostRequest) => refuse(requests, ErrorKind::Unavailable),
            Some(Fault::Refuse(kind)) => refuse(requests, kind),
            Some(Fault::LostReply) => {
                drop(self.apply(requests));
                refuse(requests, ErrorKind::UnknownOutcome)
            }
            Some(Fault::Hang) => {
                drop(self.apply(requests));
                std::future::pending().await
            }
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(nonsense) => self.state.lock().lie(requests, nonsense),
        };
        pause(after).await;
        answer
    }

    fn apply(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let mut state = self.state.lock();
        requests.iter().map(|request| state.reserve(request).map_err(|error| named(error, request))).collect()
    }

    /// An administrative call: those have latency and meet an outage, but not the scripted and random faults.
    async fn call<R>(&self, operation: Operation, act: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let met = self.state.lock().faults.next_other();
        self.meet(met, operation, act).await
    }

    async fn meet<R>(
        &self,
        (fault, latency): (Option<Fault>, Duration),
        operation: Operation,
        act: impl FnOnce(&mut State) -> Result<R>,
    ) -> Result<R> {
        let (before, after) = halves(latency);
        pause(before).await;
        let outcome = match fault {
            Some(Fault::LostRequest) => Err(injected(ErrorKind::Unavailable)),
            Some(Fault::Refuse(kind)) => Err(injected(kind)),
            Some(Fault::HangBefore) => std::future::pending().await,
            fault => {
                let outcome = act(&mut self.state.lock());
                match fault {
                    Some(Fault::LostReply) => Err(injected(ErrorKind::UnknownOutcome)),
                    Some(Fault::Hang) => std::future::pending().await,
                    _ => outcome,
                }
            }
        };
        pause(after).await;
        outcome.map_err(|error| error.during(operation))
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        // Shared, so that everything built on stores that several processes use can be tested on this one.
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
            let mut answers = self.round_trip(std::slice::from_ref(request)).await;
            answers.pop().expect("one answer to each request")
        })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(self.round_trip(requests))
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let met = self.state.lock().faults.next_reserve();
            self.meet(met, Operation::GiveBack, |state| Ok(state.take_back(back))).await
        })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(self.call(Operation::Create, move |state| state.create(name, bounds)))
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(self.call(Operation::Inspect, move |state| Ok(state.inspect(name))))
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(self.call(Operation::List, |state| Ok(state.list(page))))
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(self.call(Operation::Set, move |state| state.set(name, &change)))
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        Box::pin(self.call(Operation::Remove, move |state| Ok(state.remove(name))))
    }

    fn record<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<String>>> {
        Box::pin(self.call(Operation::Inspect, move |state| Ok(state.record(name))))
    }

    fn swap_record<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a str>,
        wanted: &'a str,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(self.call(Operation::Set, move |state| Ok(state.swap_record(name, seen, wanted))))
    }

    fn list_records<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Records>> {
        Box::pin(self.call(Operation::List, |state| Ok(state.list_records(page))))
    }
}

fn refuse(requests: &[Reserve], kind: ErrorKind) -> Vec<Result<Grant>> {
    requests.iter().map(|request| Err(named(injected(kind), request))).collect()
}

fn halves(latency: Duration) -> (Duration, Duration) {
    let before = latency / 2;
    (before, latency.saturating_sub(before))
}

async fn pause(duration: Duration) {
    // Without latency there need not even be a runtime.
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

#[cfg(test)]
mod tests;
