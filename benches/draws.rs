//! Measures the cost of a draw with criterion: time and throughput, with statistics and a comparison with the
//! last run.
//!
//! `cargo bench -p idmill-bench --bench draws` measures the rows of one sequence in `hot_path.rs`, one after
//! another. The harness of `hot_path.rs` alternates between all rows instead, so that a slow moment of the
//! machine affects all of them. Ratios and goals are therefore taken from there.

#![allow(missing_docs)] // a benchmark has no public interface

#[allow(dead_code)] // `main` and the rows of many sequences are not used here
#[path = "hot_path.rs"]
mod hot_path;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};

const THREADS: [usize; 3] = [1, 2, 4];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .without_plots()
        .configure_from_args();
    for row in hot_path::of_one_sequence() {
        let mut group = criterion.benchmark_group(format!("draw/{}", row.name.replace('`', "")));
        // A measurement counts ids, not calls: a call of `take(64)` counts as 64.
        group.throughput(Throughput::Elements(1));
        for threads in THREADS {
            let id = BenchmarkId::from_parameter(format!("{threads} threads"));
            group.bench_function(id, |bencher| bencher.iter_custom(|ids| (row.measure)(threads, ids)));
        }
        group.finish();
    }
    criterion.final_summary();
}
