//! Threads that make one transaction after the other, and how long each took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use idmill::{Result, Status};

use super::modes::{Subject, Way};
use crate::measuring::{Measurement, countable_micros, in_micros, micros};

/// A store that was busy this many times in a row is not going to serve.
const ENOUGH: u32 = 1000;

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

impl Seen {
    fn new() -> Self {
        Self { values: 0, retries: 0, elapsed: Duration::ZERO, times: in_micros(), corrected: in_micros() }
    }

    fn add(&mut self, other: &Self) {
        self.values += other.values;
        self.retries += other.retries;
        self.times.add(&other.times).expect("both count up to the same");
        self.corrected.add(&other.corrected).expect("both count up to the same");
    }
}

/// Has all threads make transactions at the same time, each of which lasts for `hold`.
pub(super) fn run(plan: &Measurement, subject: &Subject, hold: Duration) -> Result<Seen> {
    let work = |mut way: Box<dyn Way + '_>, since| work(plan, &mut *way, hold, since);
    let (each, elapsed) = plan.on_threads(|| Ok(subject.way()), work)?;
    let mut all = Seen { elapsed, ..Seen::new() };
    for seen in &each {
        all.add(seen);
    }
    Ok(all)
}

fn work(plan: &Measurement, way: &mut dyn Way, hold: Duration, since: Instant) -> Result<Seen> {
    let (mut seen, mut made, mut busy) = (Seen::new(), 0, 0);
    let mut before = since;
    while !plan.is_done(made, since) {
        match way.transaction(hold) {
            Ok(values) => {
                let took = countable_micros(before.elapsed());
                seen.times.saturating_record(took);
                // A caller who does not wait for the one before would begin as often as this.
                seen.corrected.record_correct(took, micros(hold)).expect("within the bounds");
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
    Ok(seen)
}
