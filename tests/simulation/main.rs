//! Many processes over one faulty store, on a simulated clock: every seed is another world, and the same seed is
//! the same world.
//!
//! `IDMILL_SIM_SEEDS` says how many worlds to run, `IDMILL_SIM_SEED` which one to run again.

mod caller;
mod check;
mod history;
mod plan;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use plan::Plan;

/// In a debug build as part of the other tests. CI runs thousands in a release build.
const DEFAULT_SEEDS: u64 = 50;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; it must be a number")))
}

/// One world; what was broken in it, or its trace.
fn run(seed: u64) -> Result<u64, String> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let world = world::run(Plan::of(seed));
        check::all(&world).map(|()| world.history.lock().trace())
    }));
    checked.unwrap_or_else(|_| Err("panicked, see above".to_owned())).map_err(|fault| {
        let replay = format!(
            "IDMILL_SIM_SEED={seed} cargo test --release --test simulation every_promise -- --nocapture"
        );
        format!("seed {seed}: {fault}\n  replay: {replay}")
    })
}

/// The seeds shared between threads, each with worlds of its own.
fn run_all(seeds: &[u64]) -> Vec<String> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let share = |n| seeds.iter().skip(n).step_by(threads).filter_map(|seed| run(*seed).err());
        let workers: Vec<_> =
            (0..threads).map(|n| scope.spawn(move || share(n).collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("caught")).collect()
    })
}

#[test]
fn every_promise_holds_in_every_world() {
    let seeds: Vec<u64> = match setting("IDMILL_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..setting("IDMILL_SIM_SEEDS").unwrap_or(DEFAULT_SEEDS)).collect(),
    };
    assert!(!seeds.is_empty(), "no seed to run");
    let began = Instant::now();
    let faults = run_all(&seeds);
    let per_minute = seeds.len() as f64 * 60.0 / began.elapsed().as_secs_f64();
    println!("{} seeds, {}..={}; {per_minute:.0} a minute", seeds.len(), seeds[0], seeds[seeds.len() - 1]);
    let shown: Vec<_> = faults.iter().take(5).cloned().collect();
    assert!(faults.is_empty(), "{} of {} seeds failed\n{}", faults.len(), seeds.len(), shown.join("\n"));
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(0), run(1), "another seed is another world");
}
