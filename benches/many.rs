//! The cost of 100,000 open sequences: opening, reports and closing.
//!
//! `cargo bench -p idmill-bench --features metrics --bench many` prints the time for each sequence.

#![allow(missing_docs)] // a benchmark has no public interface

use std::hint::black_box;
use std::time::Instant;

use idmill::store::MemoryStore;
use idmill_bench::sequences;

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let count = if is_test { 1_000 } else { 100_000 };
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        println!("{what}: {:?} for each of {count} sequences", begun.elapsed() / count);
    };
    let ids = sequences(MemoryStore::new());
    let mut open = Vec::new();
    timed("open and draw", &mut || {
        for n in 0..count {
            let sequence = ids.sequence::<u64>(format!("tenant-{n}")).open_blocking().expect("opens");
            let _ = sequence.blocking().next().expect("the memory store grants");
            open.push(sequence);
        }
    });
    timed("health()", &mut || drop(black_box(ids.health())));
    #[cfg(feature = "metrics")]
    timed("record_metrics()", &mut || ids.record_metrics());
    timed("close()", &mut || ids.blocking().close().expect("closes"));
    timed("drop", &mut || open.clear());
    if is_test {
        println!("Success");
    }
}
