//! Threads that make one transaction after the other, and how long each took.

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use idmill::{Result, Status};

use super::modes::{Subject, Way};
use super::{PER_RUN, Progress};
use crate::args::Bench;
use crate::times::{countable_micros, in_micros, micros};

/// A store that was busy this many times in a row is not going to serve.
const ENOUGH: u32 = 1000;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) threads: u16,
    goal: Goal,
    /// The simulated transaction.
    pub(super) hold: Duration,
    progress: Progress,
}

#[derive(Clone, Copy, Debug)]
enum Goal {
    /// Transactions for each thread.
    Count(u64),
    Time(Duration),
}

/// What the threads saw, together.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) values: u64,
    pub(super) retries: u64,
    /// From the start of all to the end of the last.
    pub(super) elapsed: Duration,
    /// In microseconds, as they were.
    pub(super) times: Histogram<u64>,
    /// The same, corrected for coordinated omission.
    pub(super) corrected: Histogram<u64>,
}

impl Plan {
    pub(super) fn new(args: &Bench, threads: u16, progress: Progress) -> Self {
        let goal = args.iterations.map_or(Goal::Time(args.duration), Goal::Count);
        Self { threads, goal, hold: args.transaction, progress }
    }

    /// Notes progress; whether that was all.
    fn is_done(&self, made: u64, since: Instant) -> bool {
        let share = match self.goal {
            Goal::Count(all) => made as f64 / all as f64,
            Goal::Time(all) => since.elapsed().as_secs_f64() / all.as_secs_f64(),
        };
        self.progress.fetch_max(thousandths(share), Ordering::Relaxed);
        share >= 1.0
    }

    /// How often a caller who does not wait for the one before would begin, in microseconds.
    fn interval(&self) -> u64 {
        micros(self.hold)
    }
}

impl Seen {
    fn new() -> Self {
        Self { values: 0, retries: 0, elapsed: Duration::ZERO, times: in_micros(), corrected: in_micros() }
    }

    fn add(&mut self, other: &Self) {
        self.values += other.values;
        self.retries += other.retries;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.times.add(&other.times).expect("both count up to the same");
        self.corrected.add(&other.corrected).expect("both count up to the same");
    }
}

/// Lets as many threads as planned make transactions at the same time.
pub(super) fn run(plan: &Plan, subject: &Subject) -> Result<Seen> {
    let begin = Barrier::new(plan.threads.into());
    let worker = || {
        let mut way = subject.way();
        begin.wait();
        work(plan, &mut *way)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("workers do not panic")).collect()
    });
    let mut all = Seen::new();
    for seen in results {
        all.add(&seen?);
    }
    Ok(all)
}

fn work(plan: &Plan, way: &mut dyn Way) -> Result<Seen> {
    let (mut seen, mut made, mut busy) = (Seen::new(), 0, 0);
    let since = Instant::now();
    let mut before = since;
    while !plan.is_done(made, since) {
        match way.transaction(plan.hold) {
            Ok(values) => {
                let took = countable_micros(before.elapsed());
                seen.times.saturating_record(took);
                seen.corrected.record_correct(took, plan.interval()).expect("within the bounds");
                seen.values += values;
                made += 1;
                busy = 0;
                before = Instant::now();
            }
            // The transaction did nothing, or nobody knows: it is begun again, and its time goes on.
            Err(error) if error.status() != Status::Permanent && busy < ENOUGH => {
                seen.retries += 1;
                busy += 1;
            }
            Err(error) => return Err(error),
        }
    }
    seen.elapsed = since.elapsed();
    Ok(seen)
}

// A share of 0 to 1, so the cast neither loses a sign nor overflows.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn thousandths(share: f64) -> u64 {
    (share.min(1.0) * PER_RUN as f64) as u64
}
