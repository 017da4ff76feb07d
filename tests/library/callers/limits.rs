//! The longest durations, the smallest id types, and memory that does not grow.

use std::future::Future as _;
use std::num::NonZeroU64;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use allocation_counter::measure;
use idmill::store::Bounds;
use idmill::{ErrorKind, Id};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use tokio::runtime::Builder;

use super::{LONG, builder, invalid};

#[tokio::test(start_paused = true)]
async fn very_long_durations_never_time_out() {
    for long in [Duration::MAX, Duration::from_secs(u64::MAX >> 1), Duration::from_secs(1 << 40)] {
        let store = FaultyStore::with_faults(Faults::outage());
        let ids =
            builder(store.clone()).store_timeout(long).idle_eviction(long).max_waiting(1).start().unwrap();
        let orders = ids.sequence::<u64>("o").outage_budget(long).timeout(long).lazy().unwrap();
        let waiting = [orders.clone(), orders.clone()]
            .map(|orders| tokio::spawn(async move { orders.next().await.unwrap() }));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        store.set_faults(Faults::none());
        for caller in waiting {
            assert!(caller.await.unwrap() <= 2, "{long:?}");
        }
        assert_eq!(ids.sequence::<u64>("p").timeout(long).await.unwrap().next().await.unwrap(), 1);
        ids.close().await;
        let ids = builder(FaultyStore::new()).store_timeout(long).own_thread().start().unwrap();
        let orders = ids.sequence::<u64>("o").open_blocking().unwrap();
        assert_eq!(orders.blocking().next().unwrap(), 1);
        assert_eq!(orders.blocking().take(3).unwrap().len(), 3);
        ids.blocking().close().unwrap();
    }
}

/// Ids from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Between<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Id for Between<MIN, MAX> {
    const MIN: u64 = MIN;
    const MAX: u64 = MAX;

    fn from_raw(_: u64) -> Self {
        Self
    }

    fn into_raw(self) -> u64 {
        0
    }
}

#[tokio::test]
async fn the_smallest_id_types_there_can_be() {
    let ids = builder(FaultyStore::new()).start().unwrap();
    let one = ids.sequence::<Between<0, 0>>("nought").await.unwrap();
    assert_eq!(one.next().await.unwrap(), Between);
    assert_eq!(one.next().await.unwrap_err().kind(), ErrorKind::Exhausted);
    invalid(ids.sequence::<Between<5, 4>>("impossible").lazy(), "do not fit");
    assert_eq!(Bounds::of::<NonZeroU64>().start(), 1);
}

/// Bytes that `work` allocates on this thread and does not free.
fn kept(work: impl FnOnce()) -> i64 {
    measure(work).bytes_current
}

#[test]
fn cancelled_callers_use_no_memory_while_the_store_hangs() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let store = FaultyStore::with_faults(Faults::none().always(Fault::HangBefore));
    let _context = runtime.enter();
    let ids = builder(store).max_waiting(100).store_timeout(LONG).start().unwrap();
    let orders = ids.sequence::<u64>("o").lazy().unwrap();
    let cancelled = |turns: usize, each: &dyn Fn()| {
        for _ in 0..turns {
            let mut context = Context::from_waker(Waker::noop());
            let mut next = pin!(orders.next());
            assert!(next.as_mut().poll(&mut context).is_pending());
            // With `turn`, the actor receives the request before the caller gives up.
            each();
        }
    };
    let turn = || runtime.block_on(tokio::task::yield_now());
    cancelled(1000, &turn);
    let known = kept(|| cancelled(10_000, &turn));
    let unheard = kept(|| cancelled(10_000, &|| ()));
    assert!(known < 40_000 && unheard < 40_000, "{known} bytes after the actor ran, {unheard} before");
}

#[test]
fn revocations_take_no_memory_until_the_actor_runs() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let _context = runtime.enter();
    let ids = builder(FaultyStore::new()).start().unwrap();
    let (one, other) = (ids.sequence::<u64>("o").lazy().unwrap(), ids.sequence::<u64>("p").lazy().unwrap());
    let bytes = kept(|| {
        for _ in 0..10_000 {
            one.discard();
            other.discard();
        }
    });
    assert!(bytes < 4000, "{bytes} bytes of 20,000 revocations");
}
