//! Runs the same work on several threads at the same time.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `work(iterations)` on each of `threads` threads, after `prepare`. Returns the wall time from the
/// common start to the last end. Each thread is pinned to a core: otherwise the scheduler sometimes puts
/// two of them on one core, and contention is not measured.
pub fn together<W: FnMut(u64) + Send>(
    threads: usize,
    iterations: u64,
    prepare: impl Fn() -> W + Sync,
) -> Duration {
    let (start, prepare) = (&Barrier::new(threads), &prepare);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    pin(number);
                    let mut work = prepare();
                    start.wait();
                    let begun = Instant::now();
                    work(iterations);
                    (begun, Instant::now())
                })
            })
            .collect();
        let spans: Vec<_> =
            workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect();
        let begun = spans.iter().map(|span| span.0).min().expect("at least one thread");
        let ended = spans.iter().map(|span| span.1).max().expect("at least one thread");
        ended - begun
    })
}

/// Pins this thread to a core by its number, where the system permits it.
pub fn pin(number: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(core) = cores.get(number % cores.len().max(1)) {
        core_affinity::set_for_current(*core);
    }
}
