//! Processes that share a window in a cache, on a simulated clock: each seed generates a different world, and
//! a rerun generates the same world. The tier and the window are the library's own, down to the bytes that
//! they send. The cache and the network are simulated.
//!
//! This test runs a fifth of the number of worlds in `IDMILL_SIM_SEEDS`. `IDMILL_SIM_SEED` runs only the
//! world of that seed.

mod check;
mod network;
mod plan;
mod server;
mod world;

use std::time::Instant;

use plan::Plan;
use server::Lie;
use world::Counted;

/// The default of `IDMILL_SIM_SEEDS`, before the division by `SHARE`. CI runs hundreds of worlds in a release
/// build.
const DEFAULT_SEEDS: u64 = 150;
/// The divisor of `IDMILL_SIM_SEEDS`: these worlds are larger than those of other simulations.
const SHARE: u64 = 5;

/// Runs one world. Returns the counts of its events, or the broken promise.
fn run(seed: u64, lie: Lie) -> Result<Counted, String> {
    let target = "--test simulation_cache";
    idmill_testing::seeds::run(target, seed, || check::all(&world::run(Plan::of(seed, lie))))
}

#[test]
fn every_promise_holds_in_every_world() {
    let seeds = idmill_testing::seeds::chosen(DEFAULT_SEEDS, SHARE);
    let began = Instant::now();
    let results = idmill_testing::seeds::run_all(&seeds, |seed| run(seed, Lie::None));
    let sum = results.iter().flatten().fold(Counted::default(), |sum, counted| sum + *counted);
    let seconds = began.elapsed().as_secs_f64();
    println!("{} worlds: {sum:?}, {seconds:.1} s", seeds.len());
    idmill_testing::seeds::all_hold(results);
    if seeds.len() > 20 {
        let enough = sum.draws > 5_000 && sum.misses > 100 && sum.restarts > 10 && sum.ahead > 100;
        assert!(enough, "too little happened: {sum:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 2..8 {
        assert_eq!(run(seed, Lie::None), run(seed, Lie::None), "seed {seed}");
    }
}

/// Tries a few seeds until one finds the bug.
fn found(lie: Lie, fault: &str) {
    idmill_testing::seeds::must_find(&lie, fault, 60, |seed| run(seed, lie));
}

/// A cache must not bring back an old number: every window could then repeat ids.
#[test]
fn a_cache_that_brings_an_old_number_back_is_found() {
    found(Lie::BringsBack, "twice");
}

#[test]
fn a_cache_that_ignores_conditions_is_found() {
    found(Lie::IgnoresCas, "twice");
}

/// Models a window that always has its maximum size, whatever is drawn.
#[test]
fn a_miss_that_skips_too_much_is_found() {
    found(Lie::NeverMindTheRate, "were skipped at once");
}
