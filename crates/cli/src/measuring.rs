//! Runs an operation repeatedly on several threads, and measures latencies. Times are in nanoseconds up to an
//! hour, with three significant digits.

#![allow(clippy::disallowed_types)] // a counter of progress, outside of the measured step

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use idmill::{Result, Snapshot};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::output::{self, or_dash};

/// Timeout of a draw, which aborts the measurement.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Steps of the progress bar per measurement.
const PER_RUN: u64 = 1000;
/// Longer times are counted as one hour.
pub(crate) const LONGEST: u64 = 3_600_000_000_000;

/// One measurement.
#[derive(Debug)]
pub(crate) struct Measurement {
    threads: u16,
    /// The number of operations per thread, instead of the time.
    count: Option<u64>,
    time: Duration,
    /// The progress, in steps of the progress bar.
    progress: AtomicU64,
}

impl Measurement {
    /// Limits each thread to `count` operations if `count` is given, or else to `time`.
    pub(crate) fn new(threads: u16, count: Option<u64>, time: Duration) -> Arc<Self> {
        Arc::new(Self { threads, count, time, progress: AtomicU64::new(0) })
    }

    /// Records progress. Returns whether the thread is done.
    pub(crate) fn is_done(&self, made: u64, since: Instant) -> bool {
        let share = match self.count {
            Some(all) => made as f64 / all as f64,
            None => since.elapsed().as_secs_f64() / self.time.as_secs_f64(),
        };
        let progress = steps(share);
        // Load first: a write on every call would cause contention.
        if progress > self.progress.load(Ordering::Relaxed) {
            self.progress.fetch_max(progress, Ordering::Relaxed);
        }
        share >= 1.0
    }

    /// Starts all threads at the same moment. Returns each result, and the time of the slowest thread.
    pub(crate) fn on_threads<W, T: Send>(
        &self,
        prepare: impl Fn() -> Result<W> + Sync,
        work: impl Fn(W, Instant) -> Result<T> + Sync,
    ) -> Result<(Vec<T>, Duration)> {
        let begin = Barrier::new(self.threads.into());
        let worker = || {
            let prepared = prepare();
            begin.wait();
            let since = Instant::now();
            work(prepared?, since).map(|made| (made, since.elapsed()))
        };
        let ended: Vec<Result<(T, Duration)>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().expect("workers do not panic")).collect()
        });
        let (made, took): (Vec<T>, Vec<Duration>) =
            ended.into_iter().collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok((made, took.into_iter().max().unwrap_or_default()))
    }
}

/// Runs measurements one after the other, with a progress bar.
pub(crate) struct Runs {
    bar: ProgressBar,
    done: u64,
}

impl Runs {
    pub(crate) fn new(runs: usize) -> Self {
        Self { bar: output::progress(runs as u64 * PER_RUN, output::PERCENT), done: 0 }
    }

    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        what: &str,
        plan: &Measurement,
        run: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.bar.set_message(what.to_owned());
        let mut run = tokio::spawn(run);
        let outcome = loop {
            match tokio::time::timeout(Duration::from_millis(100), &mut run).await {
                Ok(outcome) => break outcome,
                Err(_) => self.bar.set_position(self.done + plan.progress.load(Ordering::Relaxed)),
            }
        };
        self.done += PER_RUN;
        self.bar.set_position(self.done);
        outcome.expect("the measurement does not panic")
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Counters of an allocator; `null` if they do not apply.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// Reserves sent to the store.
    pub(crate) reserves: Option<u64>,
    /// Calls that found no id in memory.
    pub(crate) waits: Option<u64>,
    pub(crate) gaps: Option<u64>,
    pub(crate) left: Option<u64>,
}

impl Counts {
    pub(crate) fn of(seen: &Snapshot) -> Self {
        let (gaps, left) = (Some(seen.gaps.total()), Some(seen.remaining));
        Self { reserves: Some(seen.reserves), waits: Some(seen.waits), gaps, left }
    }

    pub(crate) fn cells(&self) -> [String; 4] {
        [self.reserves, self.waits, self.gaps, self.left].map(or_dash)
    }
}

/// Runs `work` off the runtime's only worker, which drives the refills.
pub(crate) async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("the measurement does not panic")
}

// The share is not negative and is limited to 1, so the cast neither loses a sign nor overflows.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn steps(share: f64) -> u64 {
    (share.min(1.0) * PER_RUN as f64) as u64
}

/// Creates a histogram of nanoseconds from 1 to [`LONGEST`].
pub(crate) fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("fixed bounds")
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_between_their_units() {
        assert_eq!((nanos(Duration::from_millis(2)), nanos(Duration::MAX)), (2_000_000, u64::MAX));
        assert_eq!((millis(2_500_000), millis(1)), (2.5, 0.000_001));
        assert_eq!([0.0, 0.5, 1.0, 7.0].map(steps), [0, 500, 1000, 1000]);
    }

    #[test]
    fn thread_is_done_at_its_goal() {
        let (since, hour) = (Instant::now(), Duration::from_secs(3600));
        let counted = Measurement::new(1, Some(4), Duration::ZERO);
        assert_eq!([3, 4, 5].map(|made| counted.is_done(made, since)), [false, true, true]);
        assert_eq!(counted.progress.load(Ordering::Relaxed), 1000);
        let timed = Measurement::new(1, None, hour);
        assert!(!timed.is_done(u64::MAX, since));
    }

    #[test]
    fn threads_are_timed_until_the_slowest_ends() {
        let plan = Measurement::new(3, Some(1), Duration::ZERO);
        let next = AtomicU64::new(0);
        let (mut made, took) = plan
            .on_threads(
                || Ok(next.fetch_add(1, Ordering::Relaxed)),
                |number, since| {
                    thread::sleep(Duration::from_millis(10 * number));
                    Ok((number, since.elapsed()))
                },
            )
            .unwrap();
        made.sort_unstable();
        assert_eq!(made.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(made.iter().all(|(_, elapsed)| *elapsed <= took) && took >= Duration::from_millis(20));
        let failed = plan.on_threads(|| Ok(()), |(), _| Err::<(), _>(idmill::ErrorKind::Denied.into()));
        assert_eq!(failed.unwrap_err().kind(), idmill::ErrorKind::Denied);
    }

    #[tokio::test]
    async fn counts_are_those_of_the_allocator() {
        let sequences = idmill::Sequences::new(idmill::store::MemoryStore::new()).unwrap();
        let ids = sequences.sequence::<u64>("s").step(10).watermark(0).lazy().unwrap();
        for _ in 0..13 {
            ids.next().await.unwrap();
        }
        let counts = Counts::of(&ids.snapshot());
        assert_eq!(counts.cells(), ["2", "2", "0", "7"]);
        assert_eq!(Counts::default().cells(), ["-"; 4]);
    }
}
