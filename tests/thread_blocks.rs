//! Blocks of threads under `Order::Thread`: how threads inherit blocks, how ids grow, and how unused ids are
//! counted.

use std::cell::RefCell;
use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use idmill::store::{MemoryStore, Store};
use idmill::{Allocator, ErrorKind, Order, Sequences};

fn open(order: Order, step: u64, block: u64) -> (Sequences, Allocator<u64>) {
    let store = Arc::new(MemoryStore::new()) as Arc<dyn Store>;
    let ids = Sequences::builder(store).own_thread().start().unwrap();
    let builder = ids.sequence::<u64>("o").order(order).step(step).watermark(0).block_size(block);
    let sequence = builder.open_blocking().unwrap();
    (ids, sequence)
}

fn in_a_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn threads_that_draw_once_waste_nothing() {
    let (ids, sequence) = open(Order::Thread, 1000, 64);
    let last = (0..1000).map(|_| in_a_thread(|| sequence.blocking().next().unwrap())).max().unwrap();
    // Allows a block of 64 ids for each of 16 slots: concurrent tests in this process use slots, too.
    assert!(last <= 1000 + 16 * 64, "a thousand ids reach {last}");
    ids.blocking().close().unwrap();
    let snapshot = sequence.snapshot();
    assert_eq!(
        (snapshot.drawn, snapshot.gaps.revoked + snapshot.given_back + snapshot.gaps.dropped),
        (1000, snapshot.granted - 1000)
    );
}

/// A new thread polls a waiting call to its end, and then draws. The block that the thread inherits has
/// smaller ids, which must be skipped.
#[test]
fn new_thread_skips_inherited_ids_below_its_awaited_id() {
    // The actor runs only while this thread is in `block_on`.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sequence = runtime.block_on(async {
        let ids = Sequences::new(MemoryStore::new()).unwrap();
        let builder = ids.sequence::<u64>("o").order(Order::Thread).step(20).watermark(0).block_size(8);
        builder.await.unwrap()
    });
    // From now on this thread owns its slot. The first call waits for its id.
    for id in 1..=9 {
        assert_eq!(runtime.block_on(sequence.next()).unwrap(), id);
    }
    assert_eq!(in_a_thread(|| sequence.try_next().unwrap()), 10, "and 11 to 17 stay in the slot");
    for id in 18..=20 {
        assert_eq!(sequence.try_next().unwrap(), id);
    }
    let mut next = Box::pin(sequence.next());
    let poll = |next: &mut std::pin::Pin<Box<idmill::Next<'_, u64>>>| {
        next.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    assert!(poll(&mut next).is_pending(), "nothing is in memory");
    let (waited, drawn) = thread::scope(|scope| {
        let fresh = scope.spawn(|| {
            loop {
                if let Poll::Ready(id) = poll(&mut next) {
                    break (id.unwrap(), sequence.try_next().unwrap());
                }
                thread::yield_now();
            }
        });
        while !fresh.is_finished() {
            runtime.block_on(tokio::task::yield_now());
        }
        fresh.join().unwrap()
    });
    assert_eq!(waited, 21);
    assert!(drawn > waited, "{drawn} came after {waited} in one thread");
}

/// Only one new thread gets the rest of an ended thread's block.
#[test]
fn threads_in_turn_and_at_once_grow_and_never_repeat() {
    let (_ids, sequence) = open(Order::Thread, 50, 7);
    let mut all = Vec::new();
    for round in 1..60_usize {
        let batches = thread::scope(|scope| {
            let draw = || (0..=round % 5).map(|_| sequence.blocking().next().unwrap()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..=round % 4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for batch in batches {
            assert!(batch.is_sorted_by(|a, b| a < b), "{batch:?}");
            all.extend(batch);
        }
    }
    let drawn = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), drawn, "an id was handed out twice");
}

/// Draws when the thread ends, and sends the results.
struct DrawsAtTheEnd(Allocator<u64>, std::sync::mpsc::Sender<idmill::Result<u64>>);

impl Drop for DrawsAtTheEnd {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.try_next());
        let _ = self.1.send(self.0.blocking().next());
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(id) = pin!(self.0.next()).poll(&mut context) {
            let _ = self.1.send(id);
        }
    }
}

thread_local! {
    static EARLIER: RefCell<Option<DrawsAtTheEnd>> = const { RefCell::new(None) };
    static LATER: RefCell<Option<DrawsAtTheEnd>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_draws_also_in_its_destructors() {
    for order in [Order::Process, Order::Thread] {
        for draws_before in [true, false] {
            let (_ids, sequence) = open(order, 1000, 8);
            let _ = sequence.blocking().next().unwrap();
            let (sender, receiver) = std::sync::mpsc::channel();
            in_a_thread(|| {
                let at_the_end = || Some(DrawsAtTheEnd(sequence.clone(), sender.clone()));
                // Destructors run in reverse order: `LATER`, then the library's thread-local state, then
                // `EARLIER`.
                EARLIER.with(|value| value.replace(at_the_end()));
                if draws_before {
                    sender.send(sequence.try_next()).unwrap();
                    LATER.with(|value| value.replace(at_the_end()));
                }
            });
            drop(sender);
            let ids: Vec<u64> = receiver.iter().map(|id| id.unwrap()).collect();
            assert_eq!(ids.len(), if draws_before { 7 } else { 3 }, "{order:?}: {ids:?}");
            assert!(ids.is_sorted_by(|a, b| a < b), "{order:?}: {ids:?}");
        }
    }
}

/// A draw in a thread-local destructor waits if no ids are in memory.
#[test]
fn a_thread_waits_also_in_its_destructors() {
    for order in [Order::Process, Order::Thread, Order::Global] {
        let (_ids, sequence) = open(order, 1, 1);
        let (sender, receiver) = std::sync::mpsc::channel();
        in_a_thread(|| {
            EARLIER.with(|value| value.replace(Some(DrawsAtTheEnd(sequence.clone(), sender.clone()))))
        });
        drop(sender);
        let kinds: Vec<_> = receiver.iter().map(|id| id.map_err(|error| error.kind())).collect();
        assert_eq!(kinds[..2], [Err(ErrorKind::Empty), Ok(1)], "{order:?}");
    }
}

#[test]
fn ids_held_by_threads_are_counted_on_close_and_revoke() {
    for close in [false, true] {
        let (ids, sequence) = open(Order::Thread, 1000, 64);
        let meet = std::sync::Barrier::new(4);
        let (drawn, held) = thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let (sequence, meet) = (&sequence, &meet);
            for _ in 0..3 {
                let sender = sender.clone();
                scope.spawn(move || {
                    for _ in 0..5 {
                        sender.send(sequence.blocking().next().unwrap()).unwrap();
                    }
                    meet.wait();
                    meet.wait();
                    // This draw must not count the ids of the thread's block again.
                    let _ = sequence.try_next().map_err(|error| error.kind());
                });
            }
            meet.wait();
            let drawn = receiver.try_iter().count() as u64;
            if close {
                ids.blocking().close().unwrap();
            } else {
                let _ = sequence.discard();
            }
            let held = sequence.snapshot();
            meet.wait();
            (drawn, held)
        });
        assert_eq!(drawn, 15);
        assert_eq!((held.drawn, held.remaining), (15, 0), "{held:?}");
        assert_eq!(held.granted, 15 + held.given_back + held.gaps.total(), "{held:?}");
        let after = sequence.snapshot();
        assert_eq!(after.granted, after.drawn + after.remaining + after.given_back + after.gaps.total());
        assert_eq!(after.gaps.dropped, held.gaps.dropped, "counted once");
    }
}
