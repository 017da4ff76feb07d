//! Stores and recorders that block, panic or do not return.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use idmill::store::{Capabilities, Grant, MemoryStore, Reserve, Store, StoreFuture};
use idmill::{ErrorKind, Result};
use idmill_testing::hooked::{Hooked, Hooks};
use tokio::runtime::Builder;

use super::{LONG, builder, returns};

/// A memory store that misbehaves in one way.
#[derive(Debug)]
struct Odd {
    store: MemoryStore,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// A reserve of `odd` blocks its thread until the flag is set.
    Blocks(Arc<AtomicBool>),
    /// A reserve of `odd` never returns, and panics when it is dropped.
    PanicsOnDrop,
    /// `capabilities` panics.
    CannotSay,
}

fn odd(way: Way) -> Hooked<Odd> {
    Hooked(Odd { store: MemoryStore::new(), way })
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("injected panic in a drop");
    }
}

impl Hooks for Odd {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn capabilities(&self) -> Capabilities {
        assert!(!matches!(self.way, Way::CannotSay), "injected panic");
        self.store.capabilities().batches(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        match &self.way {
            Way::Blocks(open) if &*request.name == "odd" => Box::pin(async move {
                while !open.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                self.store.reserve(request).await
            }),
            Way::PanicsOnDrop if &*request.name == "odd" => Box::pin(async move {
                let _bomb = Bomb;
                std::future::pending().await
            }),
            _ => self.store.reserve(request),
        }
    }
}

#[tokio::test]
async fn store_with_panicking_capabilities_is_rejected() {
    let store = odd(Way::CannotSay);
    assert_eq!(builder(store).start().unwrap_err().kind(), ErrorKind::StoreViolation);
}

#[tokio::test(start_paused = true)]
async fn call_that_panics_on_drop_fails_only_its_sequence() {
    let store = odd(Way::PanicsOnDrop);
    let ids = builder(store).store_timeout(Duration::from_secs(1)).start().unwrap();
    let (odd, even) =
        (ids.sequence::<u64>("odd").lazy().unwrap(), ids.sequence::<u64>("even").lazy().unwrap());
    assert_eq!(odd.next().await.unwrap_err().kind(), ErrorKind::Deadline);
    assert!(odd.snapshot().gaps.unknown > 0);
    assert_eq!(even.next().await.unwrap(), 1);
    ids.close().await;
    assert_eq!(even.next().await.unwrap_err().kind(), ErrorKind::Closed);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("injected panic");
    }
}

#[tokio::test]
async fn panicking_waker_ends_no_sequence() {
    let ids = builder(MemoryStore::new()).start().unwrap();
    let orders = ids.sequence::<u64>("o").lazy().unwrap();
    let waker = Waker::from(Arc::new(Panics));
    let mut next = pin!(orders.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(orders.next().await.unwrap(), 2);
    assert_eq!(next.await.unwrap(), 1);
}

/// One sequence's reserve blocks the store's thread. Draws from other sequences continue, or at least time
/// out.
#[test]
fn store_that_blocks_a_thread_does_not_delay_deadlines() {
    for own_thread in [true, false] {
        let kinds = returns(move || {
            let freed = Arc::new(AtomicBool::new(false));
            let store = odd(Way::Blocks(freed.clone()));
            let runtime = Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
            let kinds = runtime.block_on(async {
                let ids = builder(store).store_timeout(LONG * 10);
                let ids = if own_thread { ids.own_thread() } else { ids }.start().unwrap();
                let open = |name, timeout| {
                    let sequence = ids.sequence::<u64>(name).step(1).watermark(0);
                    sequence.timeout(timeout).lazy().unwrap()
                };
                let short = Duration::from_millis(500);
                let odd = open("odd", short);
                let other = open("other", if own_thread { short } else { LONG });
                // On a busy machine a call may time out before anything blocks.
                let first = loop {
                    match other.next().await {
                        Err(error) if error.kind() == ErrorKind::Deadline => {}
                        drawn => break drawn,
                    }
                };
                assert_eq!(first.unwrap(), 1);
                let late = odd.next().await.unwrap_err().kind();
                // If the store has only one thread, the call cannot succeed, but still times out.
                (late, other.next().await.map_err(|error| error.kind()))
            });
            // Unblock the store: dropping the runtime waits for its threads.
            freed.store(true, Ordering::Relaxed);
            kinds
        });
        let then = if own_thread { Err(ErrorKind::Deadline) } else { Ok(2) };
        assert_eq!(kinds, (ErrorKind::Deadline, then), "own thread: {own_thread}");
    }
}

#[test]
fn ended_runtime_is_the_named_cause() {
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let (ids, orders) = first.block_on(async {
        let ids = builder(MemoryStore::new()).start().unwrap();
        let orders = ids.sequence::<u64>("orders").lazy().unwrap();
        (ids, orders)
    });
    drop(first);
    let second = Builder::new_current_thread().enable_all().build().unwrap();
    second.block_on(async {
        let errors = [
            orders.next().await.unwrap_err(),
            orders.try_next().unwrap_err(),
            orders.handle().try_next().unwrap_err(),
            orders.take(3).await.unwrap_err(),
            ids.admin().inspect("orders").await.unwrap_err(),
            ids.sequence::<u64>("others").await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Closed);
            assert!(error.to_string().contains("own_thread"), "{error}");
        }
    });
}

#[test]
fn panicking_recorder_is_harmless() {
    #[cfg(feature = "metrics")]
    recorder::panics();
}

#[cfg(feature = "metrics")]
mod recorder {
    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    use super::*;

    struct Panics;

    impl Recorder for Panics {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            panic!("injected panic");
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            panic!("injected panic");
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("injected panic");
        }
    }

    pub(super) fn panics() {
        metrics::with_local_recorder(&Panics, || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let orders = runtime.block_on(async {
                let ids = builder(MemoryStore::new()).start().unwrap();
                let orders = ids.sequence::<u64>("o").step(1).watermark(0).lazy().unwrap();
                for expected in 1..=10 {
                    assert_eq!(orders.next().await.unwrap(), expected);
                }
                ids.close().await;
                let ids = builder(MemoryStore::new()).start().unwrap();
                let orders = ids.sequence::<u64>("o").lazy().unwrap();
                assert_eq!(orders.next().await.unwrap(), 1);
                orders
            });
            // The actor is dropped with its runtime.
            drop(runtime);
            assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Closed);
        });
    }
}
