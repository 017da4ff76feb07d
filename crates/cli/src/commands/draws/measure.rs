//! Threads that draw, and what each of them saw.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::ways::Draw;
use crate::measuring::{Goal, Measurement, in_nanos, nanos};

/// What the threads saw, together.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) ids: u64,
    /// From the start of all to the end of the last.
    pub(super) elapsed: Duration,
    /// How long draws took, in nanoseconds.
    pub(super) draws: Histogram<u64>,
}

/// Has all threads draw at the same time.
pub(super) fn measure<D: Draw>(
    plan: &Measurement,
    make: impl Fn() -> idmill::Result<D> + Sync,
) -> idmill::Result<Seen> {
    let clock = clock();
    let (each, elapsed) = plan.on_threads(make, |mut draw, since| work(plan, clock, &mut draw, since))?;
    let mut seen = Seen { ids: 0, elapsed, draws: in_nanos() };
    for (ids, draws) in each {
        seen.ids += ids;
        seen.draws.add(draws).expect("both count up to the same");
    }
    Ok(seen)
}

/// Draws in blocks of which the first draw is timed, and stands for the others; but
/// each that waited, for itself.
fn work<D: Draw>(
    plan: &Measurement,
    clock: u64,
    draw: &mut D,
    since: Instant,
) -> idmill::Result<(u64, Histogram<u64>)> {
    let mut seen = in_nanos();
    let mut ids = 0;
    loop {
        let left = match plan.goal {
            Goal::Count(all) => (all - ids).div_ceil(draw.ids()).min(D::BLOCK),
            Goal::Time(_) => D::BLOCK,
        };
        ids += block(plan.goal, clock, draw, left, since, &mut seen)? * draw.ids();
        if plan.is_done(ids, since) {
            return Ok((ids, seen));
        }
    }
}

/// Up to `draws` draws; fewer where waiting took up the time there was. Returns how many.
#[inline]
fn block<D: Draw>(
    goal: Goal,
    clock: u64,
    draw: &mut D,
    draws: u64,
    since: Instant,
    seen: &mut Histogram<u64>,
) -> idmill::Result<u64> {
    let before = Instant::now();
    let waited = draw.draw()?;
    let took = nanos(before.elapsed()).saturating_sub(clock);
    let mut waits = u64::from(waited.is_some());
    if let Some(waited) = waited {
        seen.saturating_record(nanos(waited));
    }
    let mut drawn = 1;
    while drawn < draws {
        if let Some(waited) = draw.draw()? {
            seen.saturating_record(nanos(waited));
            waits += 1;
            if matches!(goal, Goal::Time(all) if since.elapsed() >= all) {
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

/// What reading the clock twice takes, in nanoseconds: the median of many readings, one after the other.
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
