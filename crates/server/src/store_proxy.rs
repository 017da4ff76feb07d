//! Access to the store for processes that use this server as their store.
//!
//! Every answer comes from the store, not from memory. Reserves that arrive while the maximum number of
//! batches is in flight are sent to the store in batches of up to 256. So a thousand processes cause only a
//! few statements in the database. Without batches, a thousand statements would wait for each other's locks.
//!
//! A waiting reserve is not sent after its caller has disconnected or its time is over, because no caller
//! would get the ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use idmill::store::{Grant, Reserve, Store};
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_remote::protocol::MOST;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::counters;

/// Maximum number of batches in flight. With several batches, one that waits for a lock does not delay all
/// others.
const AT_ONCE: usize = 4;
/// The store of draws, which creates sequences only if the server is configured to do so.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct StoreProxy {
    pub(crate) store: Arc<dyn Store>,
    /// How long a caller waits for the store.
    pub(crate) limit: Duration,
    #[debug(skip)]
    waiting: Arc<Mutex<Vec<Waiting>>>,
    /// The places of batches in flight.
    #[debug(skip)]
    places: Arc<Semaphore>,
}

struct Waiting {
    request: Reserve,
    /// Receives the result. The caller may have stopped waiting.
    answer: oneshot::Sender<Result<Grant>>,
    /// Set when the request is sent to the store, under the lock of the waiting requests.
    sent: Arc<AtomicBool>,
}

/// The caller's side of a [`Waiting`]: the answer, and whether the request was sent.
type Awaited = (oneshot::Receiver<Result<Grant>>, Arc<AtomicBool>);

impl StoreProxy {
    pub(crate) fn of(store: Arc<dyn Store>, limit: Duration) -> Self {
        Self { store, limit, waiting: Arc::default(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Reserves ranges, in a batch with other callers if the store supports batches. Results are in the
    /// order of the requests. Waits up to the [`limit`](Self::limit).
    pub(crate) async fn reserve(&self, requests: Vec<Reserve>) -> Vec<Result<Grant>> {
        let due = Instant::now() + self.limit;
        if !self.store.capabilities().batches {
            let reserve = async |request| {
                let granted = timeout_at(due, self.store.reserve(request)).await;
                granted.unwrap_or_else(|_| Err(self.silent()))
            };
            return join_all(requests.iter().map(reserve)).await;
        }
        let (waiting, answers): (Vec<_>, Vec<_>) = requests.into_iter().map(Waiting::of).unzip();
        let place = {
            let mut queue = self.waiting.lock();
            queue.extend(waiting);
            self.places.clone().try_acquire_owned()
        };
        if let Ok(place) = place {
            // Run the batch in its own task: other callers wait for it too, and this caller may be dropped.
            tokio::spawn(self.clone().reserve_what_waits(place));
        }
        join_all(answers.into_iter().map(|awaited| self.answer(awaited, due))).await
    }

    async fn answer(&self, (mut answer, sent): Awaited, due: Instant) -> Result<Grant> {
        if let Ok(answered) = timeout_at(due, &mut answer).await {
            return answered.unwrap_or_else(|_| Err(lost()));
        }
        // Under the lock: requests are sent under it, but not after this side is closed.
        let _waiting = self.waiting.lock();
        answer.close();
        answer.try_recv().unwrap_or_else(|_| {
            // Relaxed: the lock orders the accesses.
            Err(if sent.load(Ordering::Relaxed) { self.silent() } else { self.unsent() })
        })
    }

    /// Returns the error for a store that did not answer in time.
    fn silent(&self) -> Error {
        let message = format!("the server's store did not answer within {:?}", self.limit);
        Error::new(ErrorKind::UnknownOutcome, message).during(Operation::Reserve)
    }

    /// Returns the error for a request that was not sent to the store. Nothing was reserved.
    fn unsent(&self) -> Error {
        let message = format!("the server's store was busy with other requests for {:?}; retry", self.limit);
        Error::new(ErrorKind::Unavailable, message).during(Operation::Reserve)
    }

    /// Sends the waiting requests in batches. If the store panics, the place is free again, and the next
    /// caller sends the requests that still wait.
    async fn reserve_what_waits(self, place: OwnedSemaphorePermit) {
        loop {
            let batch: Vec<Waiting> = {
                let mut waiting = self.waiting.lock();
                waiting.retain(|waiting| !waiting.answer.is_closed());
                if waiting.is_empty() {
                    // Under the lock: a later caller finds this place free.
                    return drop(place);
                }
                let most = waiting.len().min(MOST);
                waiting.drain(..most).inspect(|each| each.sent.store(true, Ordering::Relaxed)).collect()
            };
            let (requests, callers): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|Waiting { request, answer, .. }| (request, answer)).unzip();
            let grants = self.store.reserve_many(&requests).await;
            for (caller, grant) in callers.into_iter().zip(grants) {
                // The caller may have been dropped. The ids are then a gap.
                if let Err(Ok(grant)) = caller.send(grant) {
                    counters::unread(grant.range.len());
                }
            }
        }
    }
}

impl Waiting {
    fn of(request: Reserve) -> (Self, Awaited) {
        let (sender, answer) = oneshot::channel();
        let sent = Arc::<AtomicBool>::default();
        (Self { request, answer: sender, sent: sent.clone() }, (answer, sent))
    }
}

/// Returns the error for a store that panicked or returned too few results.
fn lost() -> Error {
    Error::from(ErrorKind::UnknownOutcome).during(Operation::Reserve)
}

#[cfg(test)]
mod tests {
    use idmill::store::{Bounds, Capabilities, MemoryStore, StoreFuture};
    use idmill_testing::{eventually, holds};
    use tokio::time::timeout;

    use super::*;

    /// A store whose reserves wait for permits.
    #[derive(Debug)]
    struct Slow {
        memory: MemoryStore,
        let_go: Semaphore,
        panics: bool,
    }

    impl Store for Slow {
        fn capabilities(&self) -> Capabilities {
            self.memory.capabilities()
        }

        fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
            Box::pin(async move {
                self.let_go.acquire().await.unwrap().forget();
                assert!(!self.panics, "the panic of this test");
                self.memory.reserve_many(requests).await
            })
        }

        idmill::store_calls!(|this| this.memory => reserve give_back create inspect list set remove);
    }

    const LIMIT: Duration = Duration::from_secs(60);

    fn proxy(panics: bool) -> (Arc<Slow>, StoreProxy) {
        let slow = Arc::new(Slow { memory: MemoryStore::new(), let_go: Semaphore::new(0), panics });
        let proxy = StoreProxy::of(slow.clone(), LIMIT);
        (slow, proxy)
    }

    fn request(name: &str) -> Reserve {
        Reserve::new(name.parse().unwrap(), 5).create(Bounds::new(1, u64::MAX).unwrap())
    }

    async fn waiting(proxy: &StoreProxy, many: usize) {
        eventually(&format!("{many} reserves wait"), async || {
            let waiting = proxy.waiting.lock().len();
            holds(waiting == many, waiting)
        })
        .await;
    }

    async fn under_way(proxy: &StoreProxy, many: usize) {
        eventually(&format!("{many} batches are under way"), async || {
            let under_way = AT_ONCE - proxy.places.available_permits();
            holds(if many == 0 { under_way == 0 } else { under_way >= many }, under_way)
        })
        .await;
    }

    #[tokio::test]
    async fn reserves_during_full_batches_share_the_next_batch() {
        let (slow, proxy) = proxy(false);
        let ask = |n: usize| {
            let proxy = proxy.clone();
            tokio::spawn(async move { proxy.reserve(vec![request(&format!("s{}", n % 3))]).await })
        };
        let mut first = Vec::new();
        for n in 1..=AT_ONCE {
            first.push(ask(n));
            under_way(&proxy, n).await;
            waiting(&proxy, 0).await;
        }
        let then: Vec<_> = (0..100).map(ask).collect();
        waiting(&proxy, 100).await;
        slow.let_go.add_permits(1_000);
        let mut granted = Vec::new();
        for asked in first.into_iter().chain(then) {
            granted.extend(asked.await.unwrap().into_iter().map(Result::unwrap));
        }
        assert_eq!(granted.len(), 104);
        assert_eq!(slow.memory.reserves(), AT_ONCE as u64 + 1, "round trips to the store");
        let grants = |epoch: &Grant| (epoch.identity.incarnation, epoch.range.start());
        granted.sort_by_key(grants);
        let twice = granted.windows(2).any(|pair| grants(&pair[0]) == grants(&pair[1]));
        assert!(!twice, "{granted:?}");
        under_way(&proxy, 0).await;
    }

    #[tokio::test]
    async fn dropped_caller_does_not_affect_other_callers() {
        let (slow, proxy) = proxy(false);
        let gone = proxy.clone();
        let gone = tokio::spawn(async move { gone.reserve(vec![request("s")]).await });
        under_way(&proxy, 1).await;
        gone.abort();
        let stays = proxy.clone();
        let stays = tokio::spawn(async move { stays.reserve(vec![request("s"), request("t")]).await });
        slow.let_go.add_permits(2);
        let grants = stays.await.unwrap();
        assert!(grants.iter().all(Result::is_ok), "{grants:?}");
    }

    /// Fills all batches with requests that the store does not answer.
    async fn fill(proxy: &StoreProxy) -> Vec<tokio::task::JoinHandle<Vec<Result<Grant>>>> {
        let mut asked = Vec::new();
        for n in 1..=AT_ONCE {
            let caller = proxy.clone();
            asked.push(tokio::spawn(async move { caller.reserve(vec![request("full")]).await }));
            under_way(proxy, n).await;
            waiting(proxy, 0).await;
        }
        asked
    }

    #[tokio::test]
    async fn waiting_reserve_of_a_gone_caller_is_not_sent() {
        let (slow, proxy) = proxy(false);
        let full = fill(&proxy).await;
        let ask = |name: &'static str| {
            let proxy = proxy.clone();
            tokio::spawn(async move { proxy.reserve(vec![request(name)]).await })
        };
        let gone = ask("gone");
        waiting(&proxy, 1).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let stays = ask("stays");
        waiting(&proxy, 2).await;
        slow.let_go.add_permits(1_000);
        assert!(stays.await.unwrap()[0].is_ok());
        for asked in full {
            assert!(asked.await.unwrap()[0].is_ok());
        }
        let exists = async |name: &str| slow.memory.inspect(&name.parse().unwrap()).await.unwrap().is_some();
        assert_eq!((exists("gone").await, exists("stays").await), (false, true));
    }

    #[tokio::test(start_paused = true)]
    async fn reserves_are_limited_and_unsent_ones_are_certain() {
        let (slow, proxy) = proxy(false);
        let full = fill(&proxy).await;
        let late = timeout(2 * LIMIT, proxy.reserve(vec![request("late")])).await.expect("within the limit");
        assert_eq!(late[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
        for asked in full {
            assert_eq!(asked.await.unwrap()[0].as_ref().unwrap_err().kind(), ErrorKind::UnknownOutcome);
        }
        slow.let_go.add_permits(1_000);
        under_way(&proxy, 0).await;
        assert!(slow.memory.inspect(&"late".parse().unwrap()).await.unwrap().is_none(), "it was sent");
    }

    #[tokio::test]
    async fn store_panic_is_an_unknown_outcome_and_frees_its_slot() {
        let (slow, proxy) = proxy(true);
        slow.let_go.add_permits(10);
        for _ in 0..2 * AT_ONCE {
            let error = proxy.reserve(vec![request("s")]).await.pop().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        }
        under_way(&proxy, 0).await;
    }
}
