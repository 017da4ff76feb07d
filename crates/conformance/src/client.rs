//! A client of the store for the trials: every call has a timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, Page, Records, Reserve, SequenceInfo,
    Store,
};
use idmill::{ErrorKind, Result, SequenceName, Status};
use tokio::time::timeout;

use super::ledger::{Caller, Entry, Ledger, Reply, now};
use super::outcome::{Outcome, Stop, fail};

/// A client of the store. Each call returns the store's result inside an `Outcome`: a call that times out
/// fails the trial.
#[derive(Clone, Debug)]
pub(super) struct Client {
    store: Arc<dyn Store>,
    caller: Caller,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(store: Arc<dyn Store>, timeout: Duration) -> Self {
        static CLIENTS: AtomicU32 = AtomicU32::new(1);
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Self { store, caller: Caller { client, process: std::process::id() }, timeout }
    }

    /// A client with the same timeout and another store.
    pub(super) fn of(&self, store: impl Store + 'static) -> Self {
        Self::new(Arc::new(store), self.timeout)
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// Retries transient errors, as the allocator would. A call that fails in this way has no effect, and a
    /// store may return such errors while it is busy with other calls.
    async fn settled<T, F: Future<Output = Result<T>>>(
        &self,
        what: &str,
        call: impl Fn() -> F,
    ) -> Outcome<Result<T>> {
        let calling = async {
            loop {
                match call().await {
                    Err(error) if error.kind().status() == Status::Transient => breathe().await,
                    answer => return answer,
                }
            }
        };
        let answer = timeout(self.timeout, calling).await;
        answer.map_err(|_| Stop::Failed(format!("{what}: no answer within {:?}", self.timeout)))
    }

    pub(super) async fn reserve(&self, request: &Reserve) -> Outcome<Result<Grant>> {
        self.settled("reserve", || self.store.reserve(request)).await
    }

    /// Calls the store once, without retries, as the allocator does.
    pub(super) async fn give_back(&self, back: &GiveBack) -> Outcome<Result<bool>> {
        let answer = timeout(self.timeout, self.store.give_back(back)).await;
        answer.map_err(|_| Stop::Failed(format!("give_back: no answer within {:?}", self.timeout)))
    }

    pub(super) async fn give_back_many(&self, backs: &[GiveBack]) -> Outcome<Vec<Result<bool>>> {
        let answer = timeout(self.timeout, self.store.give_back_many(backs)).await;
        answer.map_err(|_| Stop::Failed(format!("give_back_many: no answer within {:?}", self.timeout)))
    }

    pub(super) async fn reserve_many(&self, requests: &[Reserve]) -> Outcome<Vec<Result<Grant>>> {
        let answer = timeout(self.timeout, self.store.reserve_many(requests)).await;
        answer.map_err(|_| Stop::Failed(format!("reserve_many: no answer within {:?}", self.timeout)))
    }

    pub(super) async fn create(&self, name: &SequenceName, bounds: Bounds) -> Outcome<Result<SequenceInfo>> {
        self.settled("create", || self.store.create(name, bounds)).await
    }

    pub(super) async fn inspect(&self, name: &SequenceName) -> Outcome<Result<Option<SequenceInfo>>> {
        self.settled("inspect", || self.store.inspect(name)).await
    }

    pub(super) async fn list(&self) -> Outcome<Result<Vec<SequenceInfo>>> {
        self.settled("list", || self.store.list_all()).await
    }

    pub(super) async fn page(&self, page: &Page) -> Outcome<Result<Listing>> {
        self.settled("list", || self.store.list(page)).await
    }

    pub(super) async fn set(&self, name: &SequenceName, change: Change) -> Outcome<Result<SequenceInfo>> {
        self.settled("set", || self.store.set(name, change)).await
    }

    pub(super) async fn remove(&self, name: &SequenceName) -> Outcome<Result<bool>> {
        self.settled("remove", || self.store.remove(name, None)).await
    }

    /// Removes the sequence if it has this identity.
    pub(super) async fn remove_if(&self, name: &SequenceName, identity: Identity) -> Outcome<Result<bool>> {
        self.settled("remove", || self.store.remove(name, Some(identity))).await
    }

    /// The record that is stored under this name.
    pub(super) async fn kept(&self, name: &SequenceName) -> Outcome<Result<Option<String>>> {
        self.settled("record", || self.store.record(name)).await
    }

    /// Writes a record. Retries after an unknown outcome if the stored record shows that the write had no
    /// effect.
    pub(super) async fn swap(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Outcome<Result<bool>> {
        loop {
            match self.settled("swap_record", || self.store.swap_record(name, seen, wanted)).await? {
                Err(error) if error.kind().status() == Status::Unknown => {
                    let kept = self.kept(name).await?;
                    if !kept.as_ref().is_ok_and(|kept| kept.as_deref() == seen) {
                        return Ok(kept.map(|kept| kept.as_deref() == Some(wanted)));
                    }
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Writes a record, without retries.
    pub(super) async fn swap_once(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Outcome<Result<bool>> {
        let answer = timeout(self.timeout, self.store.swap_record(name, seen, wanted)).await;
        answer.map_err(|_| Stop::Failed(format!("swap_record: no answer within {:?}", self.timeout)))
    }

    pub(super) async fn records(&self, page: &Page) -> Outcome<Result<Records>> {
        self.settled("list_records", || self.store.list_records(page)).await
    }

    /// Inspects a sequence that must exist.
    pub(super) async fn look(&self, name: &SequenceName) -> Outcome<SequenceInfo> {
        match self.inspect(name).await?? {
            Some(info) if info.name == *name => Ok(info),
            Some(info) => fail!("inspect of `{name}` returned `{}`", info.name),
            None => fail!("`{name}` does not exist, although it was created or reserved from"),
        }
    }

    /// Reserves. After the timeout the future is dropped, which is how the allocator gives up on a store.
    pub(super) async fn attempt(&self, request: &Reserve, limit: Duration) -> Entry {
        let began = now();
        let reply = match timeout(limit, self.store.reserve(request)).await {
            Ok(Ok(grant)) => Reply::Granted(grant),
            Ok(Err(error)) => Reply::Failed(error.kind(), error.to_string()),
            Err(_) => Reply::Silent,
        };
        self.entry(began, request, reply)
    }

    /// The entry of a reserve that ends now.
    pub(super) fn entry(&self, began: u64, request: &Reserve, reply: Reply) -> Entry {
        let (count, ceiling) = (request.count, request.ceiling);
        Entry { caller: self.caller, began, ended: now(), count, ceiling, reply }
    }

    /// Reserves and records the result.
    pub(super) async fn record(&self, ledger: &Ledger, request: &Reserve, timeout: Duration) -> Reply {
        let entry = self.attempt(request, timeout).await;
        ledger.add(entry.clone());
        entry.reply
    }

    /// Like [`record`](Self::record), on a healthy store, which must grant the ids. Retries errors that are
    /// not permanent, as an allocator would.
    pub(super) async fn granted(&self, ledger: &Ledger, request: &Reserve) -> Outcome<Grant> {
        match self.granted_or_exhausted(ledger, request).await? {
            Some(grant) => Ok(grant),
            None => fail!("`{}` is exhausted, although it has ids left", request.name),
        }
    }

    /// Like [`granted`](Self::granted), but returns `None` at the end of the sequence.
    pub(super) async fn granted_or_exhausted(
        &self,
        ledger: &Ledger,
        request: &Reserve,
    ) -> Outcome<Option<Grant>> {
        let begun = Instant::now();
        loop {
            match self.record(ledger, request, self.timeout).await {
                Reply::Granted(grant) => return Ok(Some(grant)),
                Reply::Failed(ErrorKind::Exhausted, _) => return Ok(None),
                Reply::Failed(kind, _)
                    if kind.status() != Status::Permanent && begun.elapsed() < self.timeout =>
                {
                    breathe().await;
                }
                Reply::Failed(kind, said) => {
                    fail!("a healthy store refused a reserve: {said} ({})", kind.as_str())
                }
                Reply::Silent => {
                    fail!("a healthy store did not answer within {:?}", self.timeout)
                }
            }
        }
    }

    /// Reserves, and fails unless the error has this kind.
    pub(super) async fn refused(&self, request: &Reserve, kind: ErrorKind) -> Outcome {
        match self.reserve(request).await? {
            Err(error) if error.kind() == kind => Ok(()),
            Err(error) => fail!("expected {}, got {}: {error}", kind.as_str(), error.kind().as_str()),
            Ok(grant) => fail!("expected {}, but {grant:?} was granted", kind.as_str()),
        }
    }
}

/// A random pause, so that clients do not all retry at the same time.
async fn breathe() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(2..30))).await;
}
