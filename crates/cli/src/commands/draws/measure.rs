//! Threads that draw, and what each of them saw.

#![allow(clippy::disallowed_types)] // a counter of progress, with no part in what is measured

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::ways::Draw;
use crate::args::Draws;
use crate::times::{in_nanos, nanos};

/// What every thread of a measurement is to do.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) threads: u16,
    pub(super) goal: Goal,
    pub(super) progress: Progress,
    /// What reading the clock twice takes, in nanoseconds.
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// Ids for each thread.
    Ids(u64),
    Time(Duration),
}

/// How far a measurement has come, for those who watch.
#[derive(Debug)]
pub(super) struct Progress {
    done: AtomicU64,
    of: u64,
}

impl Progress {
    pub(super) fn share(&self) -> f64 {
        (self.done.load(Ordering::Relaxed) as f64 / self.of as f64).min(1.0)
    }
}

impl Plan {
    pub(super) fn new(args: &Draws, threads: u16) -> Self {
        let goal = args.ids.map_or(Goal::Time(args.duration), Goal::Ids);
        let of = match goal {
            Goal::Ids(ids) => ids.saturating_mul(threads.into()),
            Goal::Time(duration) => nanos(duration),
        };
        Self { threads, goal, progress: Progress { done: AtomicU64::new(0), of }, clock: clock() }
    }

    /// Notes progress; whether that was all.
    fn is_done(&self, ids: u64, more: u64, since: Instant) -> bool {
        match self.goal {
            Goal::Ids(all) => {
                self.progress.done.fetch_add(more, Ordering::Relaxed);
                ids >= all
            }
            Goal::Time(all) => {
                let passed = since.elapsed();
                self.progress.done.store(nanos(passed), Ordering::Relaxed);
                passed >= all
            }
        }
    }
}

/// What the threads saw, together.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) ids: u64,
    /// From the start of all to the end of the last.
    pub(super) elapsed: Duration,
    /// How long draws took, in nanoseconds.
    pub(super) draws: Histogram<u64>,
}

/// Lets as many threads as planned draw at the same time.
pub(super) fn measure<D: Draw>(
    plan: &Plan,
    make: impl Fn() -> idmill::Result<D> + Sync,
) -> idmill::Result<Seen> {
    let begin = Barrier::new(plan.threads.into());
    let worker = || {
        let made = make();
        begin.wait();
        let since = Instant::now();
        made.and_then(|mut draw| work(plan, &mut draw, since)).map(|(ids, draws)| (ids, since, draws))
    };
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads).map(|_| scope.spawn(worker)).collect();
        let ended = |worker: thread::ScopedJoinHandle<'_, _>| worker.join().expect("workers do not panic");
        workers.into_iter().map(ended).collect()
    });
    let end = Instant::now();
    let mut seen = Seen { ids: 0, elapsed: Duration::ZERO, draws: in_nanos() };
    for result in results {
        let (ids, since, draws) = result?;
        seen.ids += ids;
        seen.elapsed = seen.elapsed.max(end - since);
        seen.draws.add(draws).expect("both count up to the same");
    }
    Ok(seen)
}

/// Draws in blocks of which the first draw is timed, and stands for the others; but
/// each that waited, for itself.
fn work<D: Draw>(plan: &Plan, draw: &mut D, since: Instant) -> idmill::Result<(u64, Histogram<u64>)> {
    let mut seen = in_nanos();
    let mut ids = 0;
    loop {
        let left = match plan.goal {
            Goal::Ids(all) => (all - ids).div_ceil(draw.ids()).min(D::BLOCK),
            Goal::Time(_) => D::BLOCK,
        };
        let drawn = block(plan, draw, left, since, &mut seen)? * draw.ids();
        ids += drawn;
        if plan.is_done(ids, drawn, since) {
            return Ok((ids, seen));
        }
    }
}

/// Up to `draws` draws; fewer where waiting took up the time there was. Returns how many.
#[inline]
fn block<D: Draw>(
    plan: &Plan,
    draw: &mut D,
    draws: u64,
    since: Instant,
    seen: &mut Histogram<u64>,
) -> idmill::Result<u64> {
    let before = Instant::now();
    let waited = draw.draw()?;
    let took = nanos(before.elapsed()).saturating_sub(plan.clock);
    let mut waits = u64::from(waited.is_some());
    if let Some(waited) = waited {
        seen.saturating_record(nanos(waited));
    }
    let mut drawn = 1;
    while drawn < draws {
        if let Some(waited) = draw.draw()? {
            seen.saturating_record(nanos(waited));
            waits += 1;
            if matches!(plan.goal, Goal::Time(all) if since.elapsed() >= all) {
                drawn += 1;
                break;
            }
        }
        drawn += 1;
    }
    if waits < drawn && waited.is_none() {
        seen.saturating_record_n(took, drawn - waits);
    }
    Ok(drawn)
}

/// The median of many readings of the clock, one after the other.
fn clock() -> u64 {
    let mut readings: Vec<u64> = (0..1001)
        .map(|_| {
            let before = Instant::now();
            nanos(before.elapsed())
        })
        .collect();
    readings.sort_unstable();
    readings[readings.len() / 2]
}
