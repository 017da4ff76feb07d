//! Runs a model in every interleaving within its bound, and fails if there were too few interleavings.

use std::sync::Arc;
// The counter spans iterations, so loom must neither track nor reset it.
#[allow(clippy::disallowed_types)]
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;

/// Threads may be preempted anywhere, any number of times.
pub(crate) const UNBOUNDED: Option<usize> = None;

/// Explores `model` with at most `preemptions` in each interleaving. Fails if there are fewer than
/// `at_least` interleavings, because a model whose threads never interact proves nothing.
#[allow(clippy::disallowed_types)]
pub(crate) fn explore(at_least: usize, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let explored = Arc::new(AtomicUsize::new(0));
    let mut builder = Builder::new();
    // Override the environment, whose limits could let a model pass after almost no interleavings.
    builder.max_permutations = None;
    builder.max_duration = None;
    builder.checkpoint_file = None;
    builder.preemption_bound = preemptions;
    // The limit on the steps of one interleaving. Models need a few hundred steps; if the limit is reached, a
    // thread spins.
    builder.max_branches = 5_000;
    let counter = explored.clone();
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let explored = explored.load(Ordering::Relaxed);
    println!("    {explored} interleavings{}", bound(preemptions));
    assert!(explored >= at_least, "explored {explored} interleavings, expected at least {at_least}");
}

fn bound(preemptions: Option<usize>) -> String {
    preemptions.map_or_else(String::new, |bound| format!(" of up to {bound} preemptions"))
}
