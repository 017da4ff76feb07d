//! Running the same work on several threads at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `work(iterations)` on each of `threads` threads, made ready by `prepare`, and returns the wall time from the
/// common start to the last end.
pub fn together<W: FnMut(u64) + Send>(
    threads: usize,
    iterations: u64,
    prepare: impl Fn() -> W + Sync,
) -> Duration {
    let (start, prepare) = (&Barrier::new(threads), &prepare);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
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
