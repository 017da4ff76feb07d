//! The exact number of reserves for a million ids, at each step.
//!
//! With R reserves of a step each, R × step − N ids are in memory after N were drawn. A reserve is made only
//! when fewer ids than the watermark are in memory, or a caller waits for an id. So once no reserve is in
//! flight,
//!
//! ```text
//!   batch:         R = ceil(N / step)
//!   async batch:   R = ceil((N + watermark) / step)      the same, or one more: the prefetch, where fewer
//!                                                        than the watermark would be left without it
//! ```
//!
//! with any number of callers up to the step. With more callers there are fewer reserves, of more ids,
//! because callers share them.
//!
//! `cargo test --release --test reserves -- --nocapture` prints the table of `benches/README.md`.

use std::thread;
use std::time::{Duration, Instant};

use idmill::store::MemoryStore;
use idmill::{Allocator, Sequences, Snapshot};

/// Number of ids: fewer in a debug build, to save time.
const IDS: u64 = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
const STEPS: [u64; 7] = [1, 7, 10, 100, 1_000, 4_096, 1_000_000];
const THREADS: [u64; 3] = [1, 2, 5];
const TIMEOUT: Duration = Duration::from_secs(60);

/// The watermarks: 0, so no prefetch; a quarter of the step, as in benches/README.md; and the step, the
/// maximum.
fn watermarks(step: u64) -> Vec<u64> {
    let mut all = vec![0, step.div_ceil(4), step];
    all.dedup();
    all
}

#[test]
fn million_ids_take_exactly_the_computed_reserves() {
    println!(
        "| step | watermark | {} ids by one thread | by two | by five | batch + prefetch |",
        grouped(IDS)
    );
    println!("|---:|---:|---:|---:|---:|---|");
    for step in STEPS {
        for watermark in watermarks(step) {
            let counted = THREADS.map(|threads| measure(threads, step, watermark));
            for (threads, seen) in THREADS.into_iter().zip(&counted) {
                check(threads, step, watermark, seen);
            }
            let cells = counted.map(|seen| grouped(seen.reserves)).join(" | ");
            let (batch, all) = (IDS.div_ceil(step), (IDS + watermark).div_ceil(step));
            println!(
                "| {} | {} | {cells} | {} + {} |",
                grouped(step),
                grouped(watermark),
                grouped(batch),
                all - batch
            );
        }
    }
}

fn check(threads: u64, step: u64, watermark: u64, seen: &Snapshot) {
    let place = format!("{threads} threads, step {step}, watermark {watermark}: {seen:?}");
    let exactly = (IDS + watermark).div_ceil(step);
    if threads <= step {
        assert_eq!(seen.reserves, exactly, "{place}");
        assert_eq!(seen.granted, exactly * step, "{place}");
    } else {
        assert!(seen.reserves <= exactly, "{place}");
    }
    assert_eq!((seen.drawn, seen.gaps.total(), seen.failures), (IDS, 0, 0), "{place}");
    // No reserve was unnecessary: without the last one there would be too few ids.
    let (least, most) = (watermark, watermark + step - 1);
    assert!((least..=most).contains(&seen.remaining), "{place}");
}

/// Draws all ids, from empty memory on, and waits until no reserve is in flight.
fn measure(threads: u64, step: u64, watermark: u64) -> Snapshot {
    let store = MemoryStore::new();
    let sequences = Sequences::builder(store.clone()).own_thread();
    let sequences = sequences.start().unwrap();
    let sequence = |name| sequences.sequence::<u64>(name).timeout(TIMEOUT);
    let ids = sequence("counted").step(step).watermark(watermark).open_blocking().unwrap();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| draw(&ids, IDS / threads));
        }
    });
    // The same actor serves this sequence, and first handles all earlier signals of `counted`. The last
    // prefetch of `counted` may still be in flight.
    draw(&sequence("last").step(1).watermark(0).open_blocking().unwrap(), 3);
    let begun = Instant::now();
    while ids.snapshot().remaining < watermark && begun.elapsed() < TIMEOUT {
        thread::yield_now();
    }
    let seen = ids.snapshot();
    assert_eq!(store.reserves(), seen.reserves + 3, "the allocator's count differs from the store's");
    sequences.blocking().close().unwrap();
    seen
}

fn draw(ids: &Allocator<u64>, count: u64) {
    for _ in 0..count {
        ids.blocking().next().unwrap();
    }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<_> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
