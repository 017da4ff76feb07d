//! Runs a model in every interleaving, and checks that it had enough of them.

use std::sync::Arc;
// Counts across iterations, so loom must neither see it nor reset it.
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
    // Overrides the environment: with these set, a model could pass after almost no interleavings.
    builder.max_permutations = None;
    builder.max_duration = None;
    builder.checkpoint_file = None;
    builder.preemption_bound = preemptions;
    // Steps of one interleaving. A model that takes more than a few hundred has a thread that spins.
    builder.max_branches = 5_000;
    let counter = explored.clone();
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let explored = explored.load(Ordering::Relaxed);
    println!("    {explored} interleavings{}", bound(preemptions));
    assert!(explored >= at_least, "{explored} interleavings explored, at least {at_least} were expected");
}

fn bound(preemptions: Option<usize>) -> String {
    preemptions.map_or_else(String::new, |bound| format!(" of up to {bound} preemptions"))
}
