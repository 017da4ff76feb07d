//! The store as one process sees it: the shared one, watched, and out of reach while the process stands still.

use std::sync::Arc;

use idmill::store::{
    Bounds, Capabilities, Change, Grant, MemoryStore, Reserve, SequenceInfo, Store, StoreFuture,
};
use idmill::{Result, SequenceName};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::history::Shared;

/// Until when a process stands still.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Mutex<Instant>>);

impl Gate {
    pub(crate) fn open() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn shut_until(&self, until: Instant) {
        *self.0.lock() = until;
    }

    pub(crate) async fn pass(&self) {
        loop {
            let until = *self.0.lock();
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) life: usize,
    pub(crate) store: MemoryStore,
    pub(crate) history: Shared,
    pub(crate) gate: Gate,
    pub(crate) names: Arc<Vec<SequenceName>>,
}

/// Reserves under way, over when dropped.
struct UnderWay<'a> {
    history: &'a Shared,
    sent: Vec<usize>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut history = self.history.lock();
        self.sent.iter().for_each(|sent| history.is_over(*sent));
    }
}

impl Watched {
    fn sends(&self, requests: &[Reserve]) -> UnderWay<'_> {
        let mut history = self.history.lock();
        let number = |name: &SequenceName| self.names.iter().position(|known| known == name).expect("known");
        let send = |request: &Reserve| history.sends(self.life, number(&request.name), request.count);
        let sent = requests.iter().map(send).collect();
        UnderWay { history: &self.history, sent }
    }

    async fn round_trip(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let under_way = self.sends(requests);
        self.gate.pass().await;
        let answers = match requests {
            [request] => vec![self.store.reserve(request).await],
            requests => self.store.reserve_many(requests).await,
        };
        self.gate.pass().await;
        let mut history = self.history.lock();
        for (sent, answer) in under_way.sent.iter().zip(&answers) {
            history.hears(*sent, answer.as_ref().ok().copied());
        }
        drop(history);
        answers
    }
}

impl Store for Watched {
    fn capabilities(&self) -> Capabilities {
        // In one round trip for half of the processes, so that both ways are taken.
        Capabilities { batches: self.life.is_multiple_of(2), ..self.store.capabilities() }
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

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.store.create(name, bounds)
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        self.store.inspect(name)
    }

    fn list(&self) -> StoreFuture<'_, Result<Vec<SequenceInfo>>> {
        self.store.list()
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.store.set(name, change)
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        self.store.remove(name)
    }
}
