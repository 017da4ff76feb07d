//! What a draw costs, beside the bare atomic instruction in the same run.
//!
//! `cargo bench -p idmill-bench --bench hot_path` prints the table of `docs/performance.md`.

#![allow(missing_docs)] // criterion's macros make undocumented items

use std::future::Future as _;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use idmill::Order;
use idmill_bench::table::{self, Row};
use idmill_bench::{sequence, threads::together};

const GROUP: &str = "hot_path";
const THREADS: [usize; 3] = [1, 2, 4];
/// So large that refills are rare beside what is measured, as with a step that fits the load.
const STEP: u64 = 1 << 44;

/// Time per id of all threads together, `work` being what one thread does for so many ids.
fn bench<W: FnMut(u64) + Send>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    prepare: impl Fn() -> W + Sync,
) {
    for threads in THREADS {
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new(name, threads), |bencher| {
            bencher.iter_custom(|iterations| {
                // Each thread draws its share of the iterations, so that criterion's time per iteration is per id.
                let share = iterations.div_ceil(threads as u64);
                together(threads, share, &prepare)
            });
        });
    }
}

fn compared_with(group: &mut BenchmarkGroup<'_, WallTime>) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let counter = padded(AtomicU64::new(0));
    bench(group, "bare fetch_add", || {
        |n| {
            for _ in 0..n {
                black_box(counter.0.fetch_add(1, Ordering::Relaxed));
            }
        }
    });
    let counter = padded(parking_lot::Mutex::new(0_u64));
    bench(group, "parking_lot Mutex counter", || {
        |n| {
            for _ in 0..n {
                let mut counter = counter.0.lock();
                *counter += 1;
                black_box(*counter);
            }
        }
    });
}

#[repr(align(128))]
struct Padded<T>(T);

fn padded<T>(value: T) -> Padded<T> {
    Padded(value)
}

fn draws(group: &mut BenchmarkGroup<'_, WallTime>) {
    let (_ids, shared) = sequence(Order::Process, STEP);
    block_on_warm(&shared);
    bench(group, "handle", || {
        let mut handle = shared.handle();
        move |n| {
            for _ in 0..n {
                keep(handle.try_next());
            }
        }
    });
    bench(group, "&Allocator", || {
        |n| {
            for _ in 0..n {
                keep(shared.try_next());
            }
        }
    });
    bench(group, "async next()", || |n| poll_next(&shared, n));
    bench(group, "take(64)", || {
        |n: u64| {
            for _ in 0..n.div_ceil(64) {
                drop(black_box(shared.take_blocking(64, Duration::from_secs(9))));
            }
        }
    });
    let (_ids, striped) = sequence(Order::Thread, STEP);
    block_on_warm(&striped);
    bench(group, "striped &Allocator", || {
        |n| {
            for _ in 0..n {
                keep(striped.try_next());
            }
        }
    });
    bench(group, "lease of 64", || {
        let mut lease = striped.lease(64).expect("the order allows leases");
        move |n| {
            for _ in 0..n {
                keep(lease.try_next());
            }
        }
    });
}

fn block_on_warm(allocator: &idmill::Allocator<u64>) {
    let _ = allocator.next_blocking(Duration::from_secs(9)).expect("the memory store grants");
}

/// What a runtime does for a future that is ready at once.
fn poll_next(allocator: &idmill::Allocator<u64>, n: u64) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..n {
        match pin!(allocator.next()).poll(&mut context) {
            Poll::Ready(id) => keep(id),
            Poll::Pending => panic!("the step is larger than what is drawn"),
        }
    }
}

/// Uses an id as a caller would: the error is handled, the id is kept from being optimised away.
#[inline]
fn keep(id: idmill::Result<u64>) {
    black_box(id.unwrap());
}

const ROWS: [Row; 8] = [
    Row { name: "bare fetch_add", targets: &[] },
    Row { name: "handle", targets: &[(1, 1.05), (2, 1.05)] },
    Row { name: "&Allocator", targets: &[(1, 1.5)] },
    Row { name: "async next()", targets: &[] },
    Row { name: "striped &Allocator", targets: &[(2, 1.0 / 3.0)] },
    Row { name: "lease of 64", targets: &[(1, 0.35), (2, 1.0 / 8.0)] },
    Row { name: "take(64)", targets: &[] },
    Row { name: "parking_lot Mutex counter", targets: &[] },
];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots()
        .configure_from_args();
    let mut group = criterion.benchmark_group(GROUP);
    compared_with(&mut group);
    draws(&mut group);
    group.finish();
    criterion.final_summary();
    table::print(GROUP, "bare fetch_add", &ROWS, &THREADS);
}
