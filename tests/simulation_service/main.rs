//! The service of one process over long times and simple faults, on a simulated clock. `simulation` checks many
//! processes under all faults.
//!
//! `IDMILL_SIM_SEEDS` sets the number of worlds, and the length of the year. `IDMILL_SIM_SEED` runs only the
//! world of that seed.

mod truth;
mod waste;
#[cfg(feature = "metrics")]
mod year;

use std::future::Future;

use idmill_testing::seeds;

/// The default of `IDMILL_SIM_SEEDS`, for a debug build.
const DEFAULT_SEEDS: u64 = 100;

/// Runs the worlds of all seeds.
fn every_world_holds(world: impl Fn(u64) -> Result<(), String> + Sync) {
    let seeds = seeds::chosen(DEFAULT_SEEDS, 1);
    let results =
        seeds::run_all(&seeds, |seed| seeds::run("--test simulation_service", seed, || world(seed)));
    seeds::all_hold(results);
}

/// Runs a world on its own clock.
fn on_its_own_clock<R>(world: impl Future<Output = R>) -> R {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime").block_on(world)
}
