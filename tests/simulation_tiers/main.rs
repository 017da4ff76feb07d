//! Thousands of processes in several datacenters over windows, on a simulated clock: each seed generates a
//! different world, and a rerun generates the same world. The engine, the tier and the windows' decisions are
//! the library's own.
//!
//! This test runs a tenth of the number of worlds in `IDMILL_SIM_SEEDS`. `IDMILL_SIM_SEED` runs only the
//! world of that seed.

mod check;
mod cluster;
mod gate;
mod plan;
mod window;
mod world;

use std::time::Instant;

use plan::Plan;
use window::Bug;

/// The default of `IDMILL_SIM_SEEDS`, before the division by `SHARE`. CI runs hundreds of worlds in a release
/// build.
const DEFAULT_SEEDS: u64 = 50;
/// The divisor of `IDMILL_SIM_SEEDS`: these worlds are larger than those of other simulations.
const SHARE: u64 = 10;

/// Runs one world. Returns the number of lives and of calls, or the broken promise.
fn run(seed: u64, bug: Bug) -> Result<(usize, usize), String> {
    idmill_testing::seeds::run("--test simulation_tiers", seed, || {
        let world = world::run(Plan::of(seed, bug));
        check::all(&world)?;
        let history = world.history.lock();
        Ok((history.lives, history.calls.len()))
    })
}

#[test]
fn every_promise_holds_in_every_world() {
    let seeds = idmill_testing::seeds::chosen(DEFAULT_SEEDS, SHARE);
    let began = Instant::now();
    let results = idmill_testing::seeds::run_all(&seeds, |seed| run(seed, Bug::None));
    let ran = results.iter().flatten().fold((0, 0), |sum, world| (sum.0 + world.0, sum.1 + world.1));
    let seconds = began.elapsed().as_secs_f64();
    println!("{} worlds, {} lives of processes, {} calls, {seconds:.1} s", seeds.len(), ran.0, ran.1);
    idmill_testing::seeds::all_hold(results);
    let mean = (ran.0 / seeds.len(), ran.1 / seeds.len());
    assert!(seeds.len() < 5 || (mean.0 >= 40 && mean.1 >= 5_000), "too little happened: {ran:?}");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 2..8 {
        assert_eq!(run(seed, Bug::None), run(seed, Bug::None), "seed {seed}");
    }
}

/// Tries a few seeds until one finds the bug.
fn found(bug: Bug, fault: &str) {
    idmill_testing::seeds::must_find(&bug, fault, 40, |seed| run(seed, bug));
}

#[test]
fn an_unknown_outcome_taken_for_success_is_found() {
    found(Bug::UnknownTakenAsSuccess, "twice");
}

#[test]
fn a_claim_that_is_blindly_sent_again_is_found() {
    found(Bug::BlindRetry, "lost");
}

#[test]
fn premature_exhaustion_is_found() {
    found(Bug::EndTestedFirst, "exhausted while there were ids");
}

#[test]
fn a_window_too_small_for_its_isolation_is_found() {
    found(Bug::Undersized, "noticed");
}
