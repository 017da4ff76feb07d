//! The service of one process over long times and simple faults, on a simulated clock. `simulation` checks
//! many processes under all faults.
//!
//! `IDMILL_SIM_SEEDS` sets the number of worlds, and the number of days of the year. `IDMILL_SIM_SEED` runs
//! only the world of that seed.

mod truth;
mod waste;
#[cfg(feature = "metrics")]
mod year;

use std::fmt::Debug;
use std::future::Future;

use idmill_testing::seeds;

/// The default of `IDMILL_SIM_SEEDS`, for a debug build.
const DEFAULT_SEEDS: u64 = 60;
/// The number of worlds in which a planted bug must show.
const WORLDS: u64 = 60;

/// Runs the worlds of all seeds without a bug.
fn every_world_holds(run: impl Fn(u64) -> Result<(), String> + Sync) {
    let seeds = seeds::chosen(DEFAULT_SEEDS, 1);
    let run = |seed| seeds::run("--test simulation_service", seed, || run(seed));
    seeds::all_hold(seeds::run_all(&seeds, run));
}

/// Runs worlds with a planted bug until one shows this fault.
fn found(bug: &impl Debug, fault: &str, run: impl Fn(u64) -> Result<(), String>) {
    seeds::must_find(bug, fault, WORLDS, run);
}

/// Runs a world on its own clock.
fn on_its_own_clock<R>(world: impl Future<Output = R>) -> R {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime").block_on(world)
}
