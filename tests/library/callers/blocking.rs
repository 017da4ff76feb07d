//! Calls that block their thread, inside and outside of a runtime.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use idmill::{ErrorKind, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use tokio::runtime::Builder;
use tokio::task::unconstrained;

use super::{LONG, builder, invalid, returns};

/// Callers poll while the runtime of the refills ends. A poll at the wrong moment is a matter of chance.
/// Therefore a crowd of callers polls all the time.
#[test]
fn callers_queued_during_close_get_closed() {
    for _ in 0..40 {
        let store = FaultyStore::with_faults(Faults::outage());
        let ids = builder(store).max_waiting(1).own_thread().start().unwrap();
        let orders = ids.sequence::<u64>("orders").timeout(LONG).lazy().unwrap();
        let ready = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let (orders, ready) = (orders.clone(), ready.clone());
                thread::spawn(move || {
                    let mut next = pin!(orders.next());
                    let mut context = Context::from_waker(Waker::noop());
                    loop {
                        if let Poll::Ready(outcome) = next.as_mut().poll(&mut context) {
                            return outcome.unwrap_err().kind();
                        }
                        ready.store(true, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // Do not sleep, so that the close often meets a poll.
        let begun = Instant::now();
        while !ready.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < LONG, "no caller has polled");
            thread::yield_now();
        }
        let _ = ids.blocking().close();
        for caller in callers {
            assert_eq!(caller.join().expect("no panic"), ErrorKind::Closed);
        }
    }
}

#[test]
fn blocking_call_does_not_exhaust_the_coop_budget() {
    returns(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ids = builder(FaultyStore::new()).own_thread().start().unwrap();
            let orders = ids.sequence::<u64>("o").step(1).watermark(0).open_blocking().unwrap();
            for expected in 1..=1000 {
                assert_eq!(orders.blocking().next().unwrap(), expected);
            }
            let _ = ids.blocking().close();
        });
    });
}

/// Makes every blocking call on a thread that the refills need: no call could ever return.
fn refuses_to_wait(ids: &Sequences) {
    let orders = ids.sequence::<u64>("lazy").lazy().unwrap();
    invalid(ids.sequence::<u64>("o").open_blocking(), "`.await`");
    invalid(orders.blocking().next(), "`next`");
    invalid(orders.blocking().take(5), "`take`");
    invalid(orders.handle().blocking().next(), "`next`");
    invalid(ids.blocking().close(), "`close`");
}

#[test]
fn self_blocking_wait_is_rejected_at_once() {
    returns(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ids = builder(FaultyStore::new()).start().unwrap();
            refuses_to_wait(&ids);
            ids.close().await;
            let ids = builder(FaultyStore::new()).start().unwrap();
            tokio::spawn(async move { refuses_to_wait(&ids) }).await.unwrap();
            // Without tokio's cooperative budget.
            let ids = builder(FaultyStore::new()).start().unwrap();
            unconstrained(async { refuses_to_wait(&ids) }).await;
            ids.close().await;
            let ids = builder(FaultyStore::new()).start().unwrap();
            tokio::spawn(unconstrained(async move { refuses_to_wait(&ids) })).await.unwrap();
        });
    });
}

/// The actor is idle when the call wakes it, so that it lands in the slot of the worker that blocks.
#[test]
fn task_on_a_worker_may_wait() {
    fn waits(ids: &Sequences) {
        let orders = ids.sequence::<u64>("o").step(1).watermark(0).open_blocking().unwrap();
        for expected in 1..=20 {
            assert_eq!(orders.blocking().next().unwrap(), expected);
        }
        assert_eq!(orders.blocking().take(5).unwrap().len(), 5);
        ids.blocking().close().unwrap();
    }
    returns(|| {
        for workers in [2, 1] {
            let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
            let start = || runtime.block_on(async { builder(FaultyStore::new()).start().unwrap() });
            let ids = start();
            runtime.block_on(runtime.spawn(async move { waits(&ids) })).unwrap();
            let ids = start();
            runtime.block_on(runtime.spawn(unconstrained(async move { waits(&ids) }))).unwrap();
            let ids = start();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                tokio::task::spawn_local(async move { waits(&ids) }).await.unwrap();
            });
        }
    });
}

#[test]
fn threads_that_only_belong_to_the_runtime_may_wait() {
    fn waits(ids: &Sequences) {
        let orders = ids.sequence::<u64>("o").open_blocking().unwrap();
        assert_eq!(orders.blocking().next().unwrap(), 1);
        ids.blocking().close().unwrap();
    }
    returns(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ids = builder(FaultyStore::new()).start().unwrap();
            tokio::task::spawn_blocking(move || waits(&ids)).await.unwrap();
            let ids = builder(FaultyStore::new()).start().unwrap();
            let handle = tokio::runtime::Handle::current();
            let (sender, done) = tokio::sync::oneshot::channel();
            thread::spawn(move || {
                let _context = handle.enter();
                waits(&ids);
                sender.send(()).unwrap();
            });
            done.await.unwrap();
        });
        // The calling thread belongs to another runtime than the refills.
        let ids = builder(FaultyStore::new()).own_thread().start().unwrap();
        runtime.block_on(async { waits(&ids) });
    });
}

/// The runtime's paused clock is an hour ahead of the real clock, which a plain thread must not use for its
/// deadline.
#[test]
fn a_plain_thread_reckons_by_the_clock_of_the_refills() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(5)));
        let ids = builder(store).start().unwrap();
        let orders = ids.sequence::<u64>("o").lazy().unwrap();
        tokio::time::advance(Duration::from_secs(3600)).await;
        let (sender, drawn) = tokio::sync::oneshot::channel();
        thread::spawn(move || sender.send(orders.blocking().next()).unwrap());
        assert_eq!(drawn.await.unwrap().unwrap(), 1);
    });
}

#[test]
fn blocking_call_ends_within_its_timeout() {
    returns(|| {
        let ids = builder(FaultyStore::with_faults(Faults::outage())).own_thread().start().unwrap();
        let orders = ids.sequence::<u64>("o").timeout(LONG * 10).lazy().unwrap();
        let brief = orders.within(Duration::from_millis(50));
        assert_eq!(brief.blocking().next().unwrap_err().kind(), ErrorKind::Deadline);
        assert_eq!(brief.blocking().take(3).unwrap_err().kind(), ErrorKind::Deadline);
    });
}

/// The caller's paused clock is an hour ahead: the call must not wait an hour for its deadline.
#[test]
fn a_paused_caller_reckons_by_the_clock_of_the_refills() {
    returns(|| {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let ids = builder(FaultyStore::with_faults(Faults::outage())).own_thread().start().unwrap();
            let orders = ids.sequence::<u64>("o").timeout(Duration::from_millis(50)).lazy().unwrap();
            tokio::time::advance(Duration::from_secs(3600)).await;
            assert_eq!(orders.next().await.unwrap_err().kind(), ErrorKind::Deadline);
        });
    });
}
