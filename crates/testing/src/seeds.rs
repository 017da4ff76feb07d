//! Selects simulated worlds by seed, runs them on all cores, and shows how to rerun one.
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Returns the seed in `IDMILL_SIM_SEED`, or the seeds from 0 on. The number of seeds is `IDMILL_SIM_SEEDS`
/// (`default` without it), divided by `share`. The share is for worlds that are larger than the usual ones.
pub fn chosen(default: u64, share: u64) -> Vec<u64> {
    let seeds = match setting("IDMILL_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..setting("IDMILL_SIM_SEEDS").unwrap_or(default).div_ceil(share)).collect(),
    };
    assert!(!seeds.is_empty(), "no seed to run");
    seeds
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; it must be a number")))
}

/// Runs one world. An error includes the command that reruns the world. `target` is cargo's `--test NAME`,
/// with the features that it needs.
pub fn run<T>(target: &str, seed: u64, world: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let checked = catch_unwind(AssertUnwindSafe(world));
    checked.unwrap_or_else(|_| Err("panicked, see above".to_owned())).map_err(|fault| {
        let replay =
            format!("IDMILL_SIM_SEED={seed} cargo test --release {target} every_promise -- --nocapture");
        format!("seed {seed}: {fault}\n  replay: {replay}")
    })
}

/// Runs all seeds on several threads.
pub fn run_all<T: Send>(
    seeds: &[u64],
    run: impl Fn(u64) -> Result<T, String> + Sync,
) -> Vec<Result<T, String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let share = |n| seeds.iter().skip(n).step_by(threads).map(|seed| run(*seed));
        let workers: Vec<_> =
            (0..threads).map(|n| scope.spawn(move || share(n).collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("caught")).collect()
    })
}

/// Returns the results of the worlds.
///
/// # Panics
/// If any world is broken, with the first few errors.
pub fn all_hold<T>(results: Vec<Result<T, String>>) -> Vec<T> {
    let worlds = results.len();
    let (held, broken): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let faults: Vec<_> = broken.into_iter().filter_map(Result::err).collect();
    let shown = faults[..faults.len().min(5)].join("\n");
    assert!(faults.is_empty(), "{} of {worlds} seeds failed\n{shown}", faults.len());
    held.into_iter().flatten().collect()
}

/// Runs worlds with a planted bug until one shows this fault.
///
/// # Panics
/// If none of the worlds shows the fault.
pub fn must_find<T>(bug: &impl Debug, fault: &str, worlds: u64, run: impl Fn(u64) -> Result<T, String>) {
    let found = (0..worlds).find_map(|seed| run(seed).err().filter(|found| found.contains(fault)));
    let found = found.unwrap_or_else(|| panic!("{bug:?} survived"));
    println!("caught {bug:?}: {}", found.lines().next().unwrap_or_default());
}
