//! The fast paths allocate nothing.

use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use idmill::store::{MemoryStore, Store};
use idmill::{Allocator, Order, Sequences};
use idmill_guard::{Guarded, MemoryWitness};

const DRAWS: u64 = 10_000;

fn open(order: Order, watermark: u64) -> Allocator<u64> {
    open_over(Arc::new(MemoryStore::new()), order, watermark)
}

fn open_over(store: Arc<dyn Store>, order: Order, watermark: u64) -> Allocator<u64> {
    let ids = Sequences::builder(store).own_thread().start().unwrap();
    // Enough for the whole test.
    let step = 40 * DRAWS;
    let sequence =
        ids.sequence::<u64>("o").step(step).watermark(watermark).order(order).open_blocking().unwrap();
    let _ = sequence.blocking().next().unwrap();
    sequence
}

fn assert_none(what: &str, draw: impl FnMut()) {
    let mut draw = draw;
    // The first draw may initialise the thread's state.
    draw();
    let AllocationInfo { count_total, .. } = measure(|| (0..DRAWS).for_each(|_| draw()));
    assert_eq!(count_total, 0, "{what} allocated");
}

/// The first ten thousand draws cross the watermark. The signal may allocate a block of its queue.
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
        let _ = ids.within(Duration::ZERO).blocking().next().unwrap();
    });
}

#[test]
fn draws_behind_a_guard_allocate_nothing() {
    let witness = Arc::new(MemoryWitness::new());
    let guarded = Guarded::new(MemoryStore::new(), witness.clone());
    let ids = open_over(Arc::new(guarded), Order::Process, 0);
    assert!(witness.ledger("o").is_some(), "it is guarded");
    assert_none("&Allocator", || {
        let _ = ids.try_next().unwrap();
    });
    let mut handle = ids.handle();
    assert_none("a handle", || {
        let _ = handle.try_next().unwrap();
    });
}

#[test]
fn blocks_and_thread_blocks_allocate_nothing() {
    let ids = open(Order::Thread, 0);
    let _ = ids.try_next().unwrap();
    assert_none("a draw from a thread block", || {
        let _ = ids.try_next().unwrap();
    });
    let mut handle = ids.handle();
    assert_none("a handle", || {
        let _ = handle.try_next().unwrap();
    });
}

/// A thread's first draw allocates one block, and a few bytes for each other live thread.
#[test]
fn thread_blocks_take_memory_in_proportion_to_the_threads() {
    const LIVE: u64 = 600;
    let (all, last) = (open(Order::Thread, 0), open(Order::Thread, 0));
    let (meet, end) = (Barrier::new(601), Barrier::new(601));
    let first_draw = |ids: &Allocator<u64>| measure(|| assert!(ids.try_next().is_ok())).bytes_total;
    let (of_the_last, bytes): (u64, u64) = thread::scope(|scope| {
        let draw = || {
            let bytes = first_draw(&all);
            meet.wait();
            end.wait();
            bytes
        };
        let threads: Vec<_> = (0..LIVE).map(|_| scope.spawn(draw)).collect();
        meet.wait();
        let of_the_last = scope.spawn(|| first_draw(&last)).join().unwrap();
        end.wait();
        (of_the_last, threads.into_iter().map(|thread| thread.join().unwrap()).sum())
    });
    assert!(of_the_last <= 17 * 1024, "{of_the_last} bytes for the first draw of the last thread");
    // Includes the state of arc-swap for each thread.
    assert!(bytes <= LIVE * 400, "{} bytes a thread", bytes / LIVE);
}

#[test]
fn errors_of_the_fast_path_allocate_nothing() {
    let ids = open(Order::Global, 0);
    assert_none("an empty draw", || drop(ids.try_next().unwrap_err()));
}
