//! Thousands of processes in several datacenters over windows, on a simulated clock: every seed is another world, and the same
//! seed is the same world. The engine, the tier and the windows' decisions are the library's own.
//!
//! `IDMILL_SIM_SEEDS` says how many worlds are run, of which these are a tenth; `IDMILL_SIM_SEED` which one to run again.

mod check;
mod cluster;
mod gate;
mod plan;
mod window;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use plan::Plan;
use window::Bug;

/// In a debug build as part of the other tests. CI runs hundreds in a release build.
const DEFAULT_SEEDS: u64 = 50;
/// These worlds are larger than the others that the setting counts.
const SHARE: u64 = 10;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; it must be a number")))
}

/// One world; what was broken in it, or how many processes lived and how many calls they made.
fn run(seed: u64, bug: Bug) -> Result<(usize, usize), String> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let world = world::run(Plan::of(seed, bug));
        check::all(&world)?;
        let history = world.history.lock();
        Ok((history.lives, history.calls.len()))
    }));
    checked.unwrap_or_else(|_| Err("panicked, see above".to_owned())).map_err(|fault| {
        let replay = format!(
            "IDMILL_SIM_SEED={seed} cargo test --release --test simulation_tiers every_promise -- --nocapture"
        );
        format!("seed {seed}: {fault}\n  replay: {replay}")
    })
}

/// The seeds shared between threads, each with worlds of its own.
fn run_all(seeds: &[u64]) -> Vec<Result<(usize, usize), String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let share = |n| seeds.iter().skip(n).step_by(threads).map(|seed| run(*seed, Bug::None));
        let workers: Vec<_> =
            (0..threads).map(|n| scope.spawn(move || share(n).collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("caught")).collect()
    })
}

#[test]
fn every_promise_holds_in_every_world() {
    let seeds: Vec<u64> = match setting("IDMILL_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..setting("IDMILL_SIM_SEEDS").unwrap_or(DEFAULT_SEEDS).div_ceil(SHARE)).collect(),
    };
    let began = Instant::now();
    let results = run_all(&seeds);
    let ran = results.iter().flatten().fold((0, 0), |sum, world| (sum.0 + world.0, sum.1 + world.1));
    let seconds = began.elapsed().as_secs_f64();
    println!("{} worlds, {} lives of processes, {} calls, {seconds:.1} s", seeds.len(), ran.0, ran.1);
    let faults: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    let shown: Vec<_> = faults.iter().take(5).cloned().collect();
    assert!(faults.is_empty(), "{} of {} seeds failed\n{}", faults.len(), seeds.len(), shown.join("\n"));
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 2..8 {
        assert_eq!(run(seed, Bug::None), run(seed, Bug::None), "seed {seed}");
    }
}

/// The first seed that finds it, of a few.
fn found(bug: Bug, fault: &str) {
    let found = (0..40).find_map(|seed| run(seed, bug).err().filter(|found| found.contains(fault)));
    let found = found.unwrap_or_else(|| panic!("{bug:?} survived"));
    println!("caught {bug:?}: {}", found.lines().next().unwrap_or_default());
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
fn an_end_that_is_told_too_early_is_found() {
    found(Bug::EndTestedFirst, "exhausted while there were ids");
}

#[test]
fn a_window_too_small_for_its_isolation_is_found() {
    found(Bug::Undersized, "noticed");
}
