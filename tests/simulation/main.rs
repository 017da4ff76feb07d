//! Many processes over one faulty store, on a simulated clock: each seed generates a different world, and a
//! rerun generates the same world.
//!
//! `IDMILL_SIM_SEEDS` sets the number of worlds. `IDMILL_SIM_SEED` runs only the world of that seed.

mod caller;

mod check;
mod history;
mod plan;
mod store;
mod world;

use std::time::Instant;

use plan::{Bug, Plan};

/// The default of `IDMILL_SIM_SEEDS`, for a debug build. CI runs thousands of worlds in a release build.
const DEFAULT_SEEDS: u64 = 50;

/// Runs one world. Returns its trace, or the broken promise.
fn run(seed: u64, bug: Bug) -> Result<u64, String> {
    idmill_testing::seeds::run("--test simulation", seed, || {
        let world = world::run(Plan { bug, ..Plan::of(seed) });
        check::all(&world).map(|()| world.history.lock().trace())
    })
}

#[test]
fn every_promise_holds_in_every_world() {
    let seeds = idmill_testing::seeds::chosen(DEFAULT_SEEDS, 1);
    let began = Instant::now();
    let results = idmill_testing::seeds::run_all(&seeds, |seed| run(seed, Bug::None));
    let per_minute = seeds.len() as f64 * 60.0 / began.elapsed().as_secs_f64();
    println!("{} seeds, {}..={}; {per_minute:.0} a minute", seeds.len(), seeds[0], seeds[seeds.len() - 1]);
    idmill_testing::seeds::all_hold(results);
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..20 {
        assert_eq!(run(seed, Bug::None), run(seed, Bug::None), "seed {seed}");
    }
    assert_ne!(run(0, Bug::None), run(1, Bug::None), "another seed is another world");
}

#[test]
fn processes_that_serve_badly_are_found() {
    for (bug, fault) in [(Bug::TakeDrainsMemory, "idle: waited"), (Bug::WorkerIsBlocked, "progress: healed")]
    {
        idmill_testing::seeds::must_find(&bug, fault, 100, |seed| run(seed, bug));
    }
}
