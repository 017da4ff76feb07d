//! The cost of a draw, compared with the bare atomic instruction in the same run.
//!
//! `cargo bench -p idmill-bench --bench hot_path` prints the table of `benches/README.md`.
//! `benches/outside` also builds this file, as a program outside the workspace.

use std::future::Future as _;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use idmill::store::MemoryStore;
use idmill::{Allocator, Order, Sequences};
use idmill_bench::ranges::{self, Row};
use idmill_bench::{sequence, sequences, threads::together};

/// So large that refills are rare, as with a step that fits the load.
const STEP: u64 = 1 << 44;
const BARE: &str = "bare fetch_add";

/// A row: each thread calls `prepare`, and then the returned function with a number of ids. The goals are
/// ratios to the bare instruction.
fn row<S: Send + Sync + 'static, W: FnMut(u64) + Send>(
    name: &'static str,
    goals: &'static [(usize, f64)],
    shared: S,
    prepare: impl Fn(&S) -> W + Sync + 'static,
) -> Row {
    let measure = move |threads: usize, ids: u64| {
        // Split the ids among the threads, so that the time divided by `ids` is the time per id.
        together(threads, ids.div_ceil(threads as u64), || prepare(&shared))
    };
    Row { name, against: BARE, goals, measure: Box::new(measure) }
}

#[repr(align(128))]
struct Padded<T>(T);

/// The minimum for a draw from a range: a cursor, and its bounds.
struct ByHand {
    cursor: Padded<AtomicU64>,
    start: u64,
    len: u64,
}

const BY_HAND: &str = "hand-written fetch_add and bound check";

fn by_hand() -> Row {
    let range = ByHand { cursor: Padded(AtomicU64::new(0)), start: 1, len: STEP };
    row(BY_HAND, &[], Arc::new(range), |range| {
        let range = range.clone();
        move |n| {
            for _ in 0..n {
                let range = black_box(&range);
                let offset = range.cursor.0.fetch_add(1, Ordering::Relaxed);
                assert!(offset < range.len);
                black_box(range.start + offset);
            }
        }
    })
}

fn compared_with() -> [Row; 2] {
    let bare = row(BARE, &[], Arc::new(Padded(AtomicU64::new(0))), |counter| {
        let counter = counter.clone();
        move |n| {
            for _ in 0..n {
                black_box(counter.0.fetch_add(1, Ordering::Relaxed));
            }
        }
    });
    let counter = Arc::new(Padded(parking_lot::Mutex::new(0_u64)));
    let mutex = row("parking_lot Mutex counter", &[], counter, |counter| {
        let counter = counter.clone();
        move |n| {
            for _ in 0..n {
                let mut counter = counter.0.lock();
                *counter += 1;
                black_box(*counter);
            }
        }
    });
    [bare, mutex]
}

/// The rows of one sequence in the default order.
fn shared() -> Vec<Row> {
    let ids = || warm(sequence(Order::Process, STEP));
    let handle = row("handle", &[(1, 1.05), (2, 1.05)], ids(), |(_, ids)| {
        let mut handle = ids.handle();
        move |n| {
            for _ in 0..n {
                keep(handle.try_next());
            }
        }
    });
    let plain = row(PLAIN, &[(1, 1.25), (2, 1.3)], ids(), |(_, ids)| {
        let ids = ids.clone();
        move |n| {
            for _ in 0..n {
                keep(ids.try_next());
            }
        }
    });
    let polled = row("async next()", &[(1, 1.1), (2, 1.1)], ids(), |(_, ids)| {
        let ids = ids.clone();
        move |n| poll_next(&ids, n)
    });
    let take = row("take(64)", &[], ids(), |(_, ids)| {
        let ids = ids.clone();
        move |n: u64| {
            for _ in 0..n.div_ceil(64) {
                drop(black_box(ids.blocking().take(64)));
            }
        }
    });
    let cloned = row("&Allocator, a clone per draw", &[], ids(), |(_, ids)| {
        let ids = ids.clone();
        move |n| {
            for _ in 0..n {
                keep(black_box(&ids).clone().try_next());
            }
        }
    });
    let mixed = row("take(64) beside 64 draws", &[], ids(), |(_, ids)| {
        let ids = ids.clone();
        move |n: u64| {
            for _ in 0..n.div_ceil(128) {
                drop(black_box(ids.blocking().take(64)));
                (0..64).for_each(|_| keep(ids.try_next()));
            }
        }
    });
    vec![by_hand(), handle, plain, Row { against: PLAIN, ..polled }, take, cloned, mixed]
}

const PLAIN: &str = "&Allocator";
const FEW: &str = "&Allocator, 10 sequences in turn";
const FEW_STRIPED: &str = "`Order::Thread`, 10 in turn";

/// The rows of one sequence under `Order::Thread`.
fn of_threads() -> [Row; 2] {
    let ids = || warm(sequence(Order::Thread, STEP));
    let striped = row("`Order::Thread`, &Allocator", &[(1, 1.15), (2, 1.0 / 3.3)], ids(), |(_, ids)| {
        let ids = ids.clone();
        move |n| {
            for _ in 0..n {
                keep(ids.try_next());
            }
        }
    });
    let handle = row("`Order::Thread`, handle", &[(1, 0.35), (2, 0.125)], ids(), |(_, ids)| {
        let mut handle = ids.handle();
        move |n| {
            for _ in 0..n {
                keep(handle.try_next());
            }
        }
    });
    [striped, handle]
}

/// The rows of a thread that draws from many sequences in turn.
fn in_turn() -> [Row; 5] {
    let rows = |name, count, order| row(name, &[], many(order, count), |(_, ids)| drawing_in_turn(ids));
    let handles = |name, count| {
        row(name, &[], many(Order::Process, count), |(_, ids)| {
            let mut handles: Vec<_> = ids.iter().map(Allocator::handle).collect();
            move |n: u64| {
                for _ in 0..n.div_ceil(handles.len() as u64) {
                    for handle in &mut handles {
                        keep(handle.try_next());
                    }
                }
            }
        })
    };
    let twice = |row, against| Row { against, goals: &[(1, 2.0)], ..row };
    [
        handles("handles of 1,000 sequences in turn", 1000),
        rows(FEW, 10, Order::Process),
        twice(rows("&Allocator, 1,000 sequences in turn", 1000, Order::Process), FEW),
        rows(FEW_STRIPED, 10, Order::Thread),
        twice(rows("`Order::Thread`, 1,000 in turn", 1000, Order::Thread), FEW_STRIPED),
    ]
}

fn drawing_in_turn(ids: &[Allocator<u64>]) -> impl FnMut(u64) + Send + use<> {
    let ids = ids.to_vec();
    move |n: u64| {
        for _ in 0..n.div_ceil(ids.len() as u64) {
            for ids in &ids {
                keep(ids.try_next());
            }
        }
    }
}

/// Sequences with ids in memory.
fn many(order: Order, count: u64) -> (Sequences, Vec<Allocator<u64>>) {
    let ids = sequences(MemoryStore::new());
    let open = |n| ids.sequence::<u64>(format!("bench-{n}")).order(order).step(STEP).open_blocking();
    let allocators: Vec<_> = (0..count).map(|n| open(n).expect("the memory store opens")).collect();
    for allocator in &allocators {
        let _ = allocator.blocking().next().expect("the memory store grants");
    }
    (ids, allocators)
}

fn warm((ids, allocator): (Sequences, Allocator<u64>)) -> (Sequences, Allocator<u64>) {
    let _ = allocator.blocking().next().expect("the memory store grants");
    (ids, allocator)
}

/// Polls as a runtime does, with a future that is ready.
fn poll_next(allocator: &Allocator<u64>, n: u64) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..n {
        match pin!(allocator.next()).poll(&mut context) {
            Poll::Ready(id) => keep(id),
            Poll::Pending => panic!("no ids in memory: raise the step"),
        }
    }
}

/// Uses an id as a caller would: handles the error, and prevents the id from being optimised away.
#[inline]
fn keep(id: idmill::Result<u64>) {
    black_box(id.unwrap());
}

/// All rows of one sequence, after the rows that they are compared with.
pub(crate) fn of_one_sequence() -> Vec<Row> {
    let mut rows = Vec::from(compared_with());
    rows.extend(shared());
    rows.extend(of_threads());
    rows
}

pub(crate) fn main() {
    ranges::main(&[1, 2], || {
        let mut rows = of_one_sequence();
        rows.extend(in_turn());
        rows
    });
}
