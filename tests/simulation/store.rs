//! One process's view of the shared store: calls are recorded, and reserves and give-backs wait while the
//! process is paused.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Capabilities, GiveBack, Grant, Reserve, Store, StoreFuture};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_testing::faulty::FaultyStore;
use idmill_testing::hooked::Hooks;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::history::Shared;

/// The end of a process's pause.
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
    pub(crate) store: FaultyStore,
    pub(crate) history: Shared,
    pub(crate) gate: Gate,
    pub(crate) names: Arc<Vec<SequenceName>>,
    /// When reserves begin to be blocked, since the world began: a planted bug.
    pub(crate) blocked: Option<Duration>,
}

/// Reserves in flight, which end on drop.
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

/// A give-back in flight, which ends on drop.
struct GoesBack<'a>(&'a Shared, usize);

impl Drop for GoesBack<'_> {
    fn drop(&mut self) {
        let mut history = self.0.lock();
        history.given_back[self.1].over = history.now();
    }
}

impl Watched {
    fn sends(&self, requests: &[Reserve]) -> UnderWay<'_> {
        let mut history = self.history.lock();
        let number = |name: &SequenceName| self.names.iter().position(|known| known == name).expect("known");
        let send = |request: &Reserve| {
            history.sends(self.life, number(&request.name), request.count, request.create.is_some())
        };
        let sent = requests.iter().map(send).collect();
        UnderWay { history: &self.history, sent }
    }

    async fn round_trip(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let under_way = self.sends(requests);
        if self.blocked.is_some_and(|from| self.history.lock().now() > from) {
            sleep(Duration::from_secs(15)).await;
        }
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

impl Hooks for Watched {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn capabilities(&self) -> Capabilities {
        // Every second life uses batches, so that both ways are tested.
        self.store.capabilities().batches(self.life.is_multiple_of(2))
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

    /// Applies each give-back once: a second application would be a bug of the store or the allocator. One
    /// give-back in four arrives long after its sender has given up.
    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let sent = self.history.lock().gives_back(self.life, &back.name, back.rest);
            let _under_way = GoesBack(&self.history, sent);
            self.gate.pass().await;
            if back.rest.start().wrapping_add(self.life as u64).is_multiple_of(4) {
                let (store, back) = (self.store.clone(), back.clone());
                let late = Duration::from_millis(back.rest.len().wrapping_mul(7919) % 30_000);
                tokio::spawn(async move {
                    sleep(late).await;
                    store.give_back(&back).await
                });
                return Err(ErrorKind::UnknownOutcome.into());
            }
            let taken = self.store.give_back(back).await;
            self.gate.pass().await;
            taken
        })
    }
}
