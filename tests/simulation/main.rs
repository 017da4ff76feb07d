//! Many processes over one faulty store, on a simulated clock: each seed generates a different world, and a
//! rerun generates the same world.
//!
//! `IDMILL_SIM_SEEDS` sets the number of worlds. `IDMILL_SIM_SEED` runs only the world of that seed.

mod caller;

mod check;
mod forged;
mod history;
mod plan;
mod store;
mod world;

use std::time::Instant;

use history::{History, Outcome};
use plan::{Bug, Plan};

/// The default of `IDMILL_SIM_SEEDS`, for a debug build. CI runs thousands of worlds in a release build.
const DEFAULT_SEEDS: u64 = 50;

/// What happened in a world: its trace, and the number of calls with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Happened {
    trace: u64,
    /// Calls that returned ids, in the order of `View`.
    served: [usize; 4],
    refused: usize,
    cancelled: usize,
    given_back: usize,
    revoked: usize,
}

impl Happened {
    fn of(history: &History) -> Self {
        let mut happened = Self { trace: history.trace(), ..Self::default() };
        for draw in &history.draws {
            *match draw.outcome {
                Outcome::Ids(_) => &mut happened.served[draw.view as usize],
                Outcome::Refused(_) => &mut happened.refused,
                Outcome::Cancelled => &mut happened.cancelled,
            } += 1;
        }
        (happened.given_back, happened.revoked) = (history.given_back.len(), history.revoked.len());
        happened
    }
}

/// Runs one world. Returns what happened, or the broken promise.
fn run(seed: u64, bug: Bug) -> Result<Happened, String> {
    idmill_testing::seeds::run("--test simulation", seed, || {
        let world = world::run(Plan { bug, ..Plan::of(seed) });
        check::all(&world).map(|()| Happened::of(&world.history.lock()))
    })
}

/// Fails if too little happened: a library that refuses every call would break no other promise.
fn enough_happened(worlds: &[Happened]) {
    if (worlds.len() as u64) < DEFAULT_SEEDS {
        return;
    }
    let mean = |count: &dyn Fn(&Happened) -> usize| worlds.iter().map(count).sum::<usize>() / worlds.len();
    let served = [0, 1, 2, 3].map(|view| mean(&|world| world.served[view]));
    let refused = mean(&|world| world.refused);
    let events: [&dyn Fn(&Happened) -> usize; 3] =
        [&|world| world.cancelled, &|world| world.given_back, &|world| world.revoked];
    let events = events.map(mean);
    println!("calls of a world: {served:?} served, {refused} refused; {events:?} other events");
    assert!(served.iter().zip([200, 80, 20, 20]).all(|(count, least)| *count >= least), "{served:?}");
    assert!(refused >= 100 && events.iter().all(|count| *count > 0), "{refused} refused, {events:?}");
}

#[test]
fn every_promise_holds_in_every_world() {
    let seeds = idmill_testing::seeds::chosen(DEFAULT_SEEDS, 1);
    let began = Instant::now();
    let results = idmill_testing::seeds::run_all(&seeds, |seed| run(seed, Bug::None));
    let per_minute = seeds.len() as f64 * 60.0 / began.elapsed().as_secs_f64();
    println!("{} seeds, {}..={}; {per_minute:.0} a minute", seeds.len(), seeds[0], seeds[seeds.len() - 1]);
    enough_happened(&idmill_testing::seeds::all_hold(results));
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
