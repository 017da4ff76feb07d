//! One thread at full drain rate, over stores of 1, 10 and 100 ms, with adaptive and with fixed sizes.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use idmill::{Allocator, Sequences};
use idmill_bench::{TIMEOUT, sequences, slow_store};

use crate::times::{histogram, nanos, pretty};

/// How long each row is measured, after it has settled.
const MEASURED: Duration = Duration::from_secs(3);
/// The time in which adaptive sizes adapt to the rate of a caller that only draws.
const SETTLED: Duration = Duration::from_secs(4);

#[derive(Clone, Copy)]
enum Sizes {
    Adaptive,
    /// The watermark is `cover` times the draws during one refill, and the step is twice the watermark.
    Fixed {
        cover: u64,
    },
    /// Fixed, without prefetching.
    Batch,
}

impl Sizes {
    fn label(self) -> String {
        match self {
            Self::Adaptive => "adaptive, no outage budget".to_owned(),
            Self::Fixed { cover } => format!("fixed, watermark {cover} × latency × rate"),
            Self::Batch => "fixed, no prefetch (batch)".to_owned(),
        }
    }
}

struct Row {
    draws: u64,
    reserves: u64,
    waits: u64,
    elapsed: Duration,
    latencies: Histogram<u64>,
}

/// Prints the table.
pub(crate) fn run(smoke: bool) {
    let (settle, measure) = if smoke { (MEASURED / 100, MEASURED / 100) } else { (SETTLED, MEASURED) };
    let (rate, clock) = calibrate(measure);
    println!(
        "one thread that only draws and reads the clock: {:.1} M ids/s; two clock reads take {clock} ns",
        rate / 1e6
    );
    println!(
        "\n| store (measured) | sizes | M ids/s | reserves | draws that waited | p50 | p99 | p99.99 | max |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    for millis in [1, 10, 100] {
        for sizes in [Sizes::Adaptive, Sizes::Fixed { cover: 4 }, Sizes::Batch] {
            let latency = Duration::from_millis(millis);
            let taken = round_trip(latency);
            let (_ids, allocator) = open(latency, taken, sizes, rate);
            let _ = drain(&allocator, settle);
            print(latency, taken, sizes, &drain(&allocator, measure));
        }
    }
}

/// Returns the drain rate without refills, and the time that two clock reads take.
fn calibrate(time: Duration) -> (f64, u64) {
    let ids = sequences(slow_store(Duration::ZERO));
    let allocator =
        ids.sequence::<u64>("calibrate").step(1 << 44).open_blocking().expect("the memory store opens");
    let row = drain(&allocator, time);
    let mut clock = histogram();
    for _ in 0..100_000 {
        let begun = Instant::now();
        clock.saturating_record(nanos(begun.elapsed()));
    }
    (row.draws as f64 / row.elapsed.as_secs_f64(), clock.value_at_quantile(0.5))
}

/// Measures a refill, which takes longer than `latency`, because timers are coarser than a millisecond.
/// Returns the maximum of five refills.
fn round_trip(latency: Duration) -> Duration {
    let ids = sequences(slow_store(latency));
    let allocator = ids
        .sequence::<u64>("round-trip")
        .step(1)
        .watermark(0)
        .open_blocking()
        .expect("the memory store opens");
    let refill = |_| {
        let begun = Instant::now();
        allocator.blocking().next().expect("the memory store grants");
        begun.elapsed()
    };
    (0..5).map(refill).max().expect("five of them")
}

// The rate of one thread is far below 2^63 ids per second.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn open(latency: Duration, taken: Duration, sizes: Sizes, rate: f64) -> (Sequences, Allocator<u64>) {
    let ids = sequences(slow_store(latency));
    let during_refill = (rate * taken.as_secs_f64()).ceil() as u64;
    let sequence = ids.sequence::<u64>("tails").timeout(TIMEOUT);
    let sequence = match sizes {
        Sizes::Adaptive => sequence.outage_budget(Duration::ZERO).max_buffered(1 << 40),
        Sizes::Fixed { cover } => sequence.step(2 * cover * during_refill).watermark(cover * during_refill),
        Sizes::Batch => sequence.step(8 * during_refill).watermark(0),
    };
    let allocator = sequence.open_blocking().expect("the memory store opens");
    (ids, allocator)
}

fn drain(allocator: &Allocator<u64>, time: Duration) -> Row {
    let mut latencies = histogram();
    let mut handle = allocator.handle();
    let before = allocator.snapshot();
    let (start, mut draws) = (Instant::now(), 0);
    let mut now = start;
    while now - start < time {
        handle.blocking().next().expect("the memory store grants");
        let drawn = Instant::now();
        latencies.saturating_record(nanos(drawn - now));
        now = drawn;
        draws += 1;
    }
    let after = allocator.snapshot();
    let (reserves, waits) = (after.reserves - before.reserves, after.waits - before.waits);
    Row { draws, reserves, waits, elapsed: start.elapsed(), latencies }
}

fn print(latency: Duration, taken: Duration, sizes: Sizes, row: &Row) {
    let at = |quantile| pretty(row.latencies.value_at_quantile(quantile));
    println!(
        "| {latency:?} ({:.1} ms) | {} | {:.1} | {} | {} | {} | {} | {} | {} |",
        taken.as_secs_f64() * 1e3,
        sizes.label(),
        row.draws as f64 / row.elapsed.as_secs_f64() / 1e6,
        row.reserves,
        row.waits,
        at(0.5),
        at(0.99),
        at(0.9999),
        pretty(row.latencies.max()),
    );
}
