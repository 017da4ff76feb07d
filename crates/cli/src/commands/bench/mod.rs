//! `idmill bench`: the throughput and the latency of each mode on a store.

mod report;
mod subject;
mod transactions;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use hdrhistogram::Histogram;
use idmill::{Result, Status};
use serde::Serialize;

use self::report::Report;
use self::subject::{Subject, Way};
use crate::args::{Bench, Global, Mode, spelled};
use crate::error::{CliError, Outcome};
use crate::measuring::{Counts, LONGEST, Measurement, Runs, millis, nanos, off_runtime, times};
use crate::opening::Measured;
use crate::output::{self, digits, rate};

const SEQUENCE: &str = "idmill-bench";
/// Number of consecutive failures that are not permanent, after which the store counts as unusable.
const ENOUGH: u32 = 1000;

pub(super) async fn run(global: &Global, args: Bench) -> Outcome {
    if args.iterations == Some(0) {
        let error = CliError::usage("`--iterations 0` measures no transactions");
        return Err(error.hint("set `--iterations` to at least 1, or give a `--duration`"));
    }
    if args.markdown && global.json {
        let error = CliError::usage("`--json` and `--markdown` cannot be combined");
        return Err(error.hint("write the JSON to a file with `--json FILE`, or drop one of the two"));
    }
    let store = Measured::open(global, SEQUENCE).await?;
    let modes = modes(&args, &store)?;
    output::note(global.json, &store.description);
    let report = Report::new(&store, &args, measure_all(&store, &args, &modes).await?);
    if let Some(file) = &args.file {
        output::write_file(file, &(output::json(&report) + "\n"))?;
    }
    output::result(global.json, &report, |report| report.human(args.markdown))
}

/// Returns the requested modes, or all that the store supports.
fn modes(args: &Bench, store: &Measured) -> Outcome<Vec<Mode>> {
    let in_transactions = transactions::are_known(store);
    if let Some(mode) = args.mode.iter().find(|mode| mode.is_in_transaction() && !in_transactions) {
        let (mode, scheme) = (spelled(mode), store.url.scheme());
        let message = format!("mode `{mode}` is not supported for `{scheme}:` stores");
        return Err(CliError::usage(message).hint(format!("it is supported for {}", transactions::known())));
    }
    let asked = if args.mode.is_empty() { Mode::value_variants() } else { &args.mode };
    Ok(asked.iter().copied().filter(|mode| in_transactions || !mode.is_in_transaction()).collect())
}

async fn measure_all(store: &Measured, args: &Bench, modes: &[Mode]) -> Outcome<Vec<Row>> {
    let (mut runs, mut rows) = (Runs::new(args.threads.len() * modes.len()), Vec::new());
    for &threads in &args.threads {
        for &mode in modes {
            let subject = Subject::prepare(store, args, mode).await?;
            let plan = Measurement::new(threads, args.iterations, args.duration);
            let (of_run, hold) = (plan.clone(), args.transaction);
            let run = off_runtime(move || (measure(&of_run, &subject, hold), subject));
            let (seen, subject) = runs.run(&format!("{} x {threads}", spelled(&mode)), &plan, run).await;
            rows.push(Row::new(mode, threads, &seen?, &subject));
            subject.close().await;
        }
    }
    Ok(rows)
}

/// The counts and times of one thread, or the sum of all threads.
#[derive(Debug)]
struct Totals {
    values: u64,
    retries: u64,
    /// The time from the common start to the end of the slowest thread.
    elapsed: Duration,
    /// Latencies in nanoseconds, as measured.
    times: Histogram<u64>,
    /// Latencies in nanoseconds, corrected for coordinated omission.
    corrected: Histogram<u64>,
}

impl Totals {
    fn new() -> Self {
        Self { values: 0, retries: 0, elapsed: Duration::ZERO, times: times(), corrected: times() }
    }
}

/// Runs transactions on all threads at the same time. Each transaction works for `hold` after it has taken
/// its ids.
fn measure(plan: &Measurement, subject: &Subject, hold: Duration) -> Result<Totals> {
    let work = |mut way: Way<'_>, since| work(plan, &mut way, hold, since);
    let (each, elapsed) = plan.on_threads(|| subject.way(), work)?;
    let mut all = Totals { elapsed, ..Totals::new() };
    for seen in each {
        all.values += seen.values;
        all.retries += seen.retries;
        all.times.add(&seen.times).expect("both histograms have the same range");
        all.corrected.add(&seen.corrected).expect("both histograms have the same range");
    }
    Ok(all)
}

fn work(plan: &Measurement, way: &mut Way<'_>, hold: Duration, since: Instant) -> Result<Totals> {
    let (mut seen, mut made, mut busy) = (Totals::new(), 0, 0);
    let mut before = since;
    while !plan.is_done(made, since) {
        match way(hold) {
            Ok(values) => {
                let took = nanos(before.elapsed()).clamp(1, LONGEST);
                seen.times.saturating_record(took);
                // The correction assumes that a transaction should start every `hold`.
                seen.corrected.record_correct(took, nanos(hold)).expect("within the bounds");
                seen.values += values;
                made += 1;
                busy = 0;
                before = Instant::now();
            }
            // The transaction did nothing, or its outcome is unknown. Repeat the transaction, and keep its
            // start time.
            Err(error) if error.status() != Status::Permanent && busy < ENOUGH => {
                seen.retries += 1;
                busy += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(seen)
}

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("max", 1.0)];

/// Latencies in milliseconds by quantile name.
type Percentiles = BTreeMap<&'static str, f64>;

fn percentiles(times: &Histogram<u64>) -> Percentiles {
    QUANTILES.iter().map(|(name, quantile)| (*name, millis(times.value_at_quantile(*quantile)))).collect()
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Row {
    mode: Mode,
    threads: u16,
    values: u64,
    seconds: f64,
    values_per_second: f64,
    /// Latencies of transactions, corrected for coordinated omission.
    corrected_ms: Percentiles,
    /// Latencies of transactions, as measured.
    times_ms: Percentiles,
    /// `async` and the in-transaction modes count only reserves; their other counts are `null`.
    #[serde(flatten)]
    counts: Counts,
    retries: u64,
}

impl Row {
    fn new(mode: Mode, threads: u16, seen: &Totals, subject: &Subject) -> Self {
        let seconds = seen.elapsed.as_secs_f64();
        Self {
            mode,
            threads,
            values: seen.values,
            seconds,
            values_per_second: seen.values as f64 / seconds,
            corrected_ms: percentiles(&seen.corrected),
            times_ms: percentiles(&seen.times),
            counts: subject.counts(seen.times.len()),
            retries: seen.retries,
        }
    }

    fn times(&self) -> Vec<String> {
        let mut cells = vec![spelled(&self.mode), self.threads.to_string(), rate(self.values_per_second)];
        cells.extend(QUANTILES.iter().map(|(name, _)| digits(self.corrected_ms[name])));
        cells
    }

    fn counts(&self) -> Vec<String> {
        let mut cells = vec![spelled(&self.mode), self.threads.to_string(), self.values.to_string()];
        cells.extend(self.counts.cells());
        cells.push(self.retries.to_string());
        cells
    }
}

#[cfg(test)]
mod tests;
