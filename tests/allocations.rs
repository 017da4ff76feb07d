//! The fast paths allocate nothing.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use idmill::store::{MemoryStore, Store};
use idmill::{Allocator, Order, Sequences};

const DRAWS: u64 = 10_000;

fn open(order: Order, watermark: u64) -> Allocator<u64> {
    let store = Arc::new(MemoryStore::new()) as Arc<dyn Store>;
    let ids = Sequences::builder(store).own_thread().start().unwrap();
    // It outlasts the test.
    let step = 40 * DRAWS;
    let sequence =
        ids.sequence::<u64>("o").step(step).watermark(watermark).order(order).open_blocking().unwrap();
    let _ = sequence.next_blocking(Duration::from_secs(60)).unwrap();
    sequence
}

fn assert_none(what: &str, draw: impl FnMut()) {
    let mut draw = draw;
    // The first draw may set up what the thread remembers.
    draw();
    let AllocationInfo { count_total, .. } = measure(|| (0..DRAWS).for_each(|_| draw()));
    assert_eq!(count_total, 0, "{what} allocated");
}

/// The signal at the watermark, which the first ten thousand draws cross, may link a block of its queue.
fn cross_the_watermark(ids: &Allocator<u64>) {
    let crossing = measure(|| {
        for _ in 0..DRAWS {
            let _ = ids.try_next().unwrap();
        }
    });
    assert!(crossing.count_total <= 1, "{crossing:?}");
}

#[test]
fn draws_allocate_nothing() {
    let ids = open(Order::Process, 39 * DRAWS + DRAWS / 2);
    let _ = ids.try_next().unwrap();
    cross_the_watermark(&ids);
    assert_none("&Allocator", || {
        let _ = ids.try_next().unwrap();
    });
    let mut handle = ids.handle();
    assert_none("a handle", || {
        let _ = handle.try_next().unwrap();
    });
    let mut context = Context::from_waker(Waker::noop());
    assert_none("next()", || match pin!(ids.next()).poll(&mut context) {
        Poll::Ready(id) => assert!(id.is_ok()),
        Poll::Pending => panic!("there are ids in memory"),
    });
    assert_none("next_blocking()", || {
        let _ = ids.next_blocking(Duration::ZERO).unwrap();
    });
}

#[test]
fn leases_and_stripes_allocate_nothing() {
    let ids = open(Order::Thread, 0);
    let _ = ids.try_next().unwrap();
    assert_none("a striped draw", || {
        let _ = ids.try_next().unwrap();
    });
    let mut lease = ids.lease(64).unwrap();
    assert_none("a lease", || {
        let _ = lease.try_next().unwrap();
    });
}

#[test]
fn errors_of_the_fast_path_allocate_nothing() {
    let ids = open(Order::Global, 0);
    assert_none("a dry draw", || drop(ids.try_next().unwrap_err()));
}
