//! `idmill draws`: the speed of draws, compared with a bare atomic instruction.

mod report;
mod ways;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use idmill::store::Store;
use idmill::{Allocator, Error, ErrorKind, Order, Result, Sequences};
use tokio::runtime::Builder;

use self::report::Row;
use self::ways::{Draw, Future_, Take, bare};
use crate::args::{Drawing, Draws, Global, spelled};
use crate::failure::{Failure, Outcome};
use crate::measuring::{Counts, Goal, Measurement, Runs, TIMEOUT, nanos, off_runtime, times};
use crate::opening::Measured;
use crate::output;

const SEQUENCE: &str = "idmill-draws";

pub(super) async fn run(global: &Global, args: Draws) -> Outcome {
    if args.ids == Some(0) {
        return Err(Failure::usage("`--ids 0` measures no ids")
            .hint("set `--ids` to at least 1, or give a `--duration`"));
    }
    let store = Measured::open(global, SEQUENCE).await?;
    output::note(global.json, &store.description);
    let rows = measure_all(&store.store, args).await?;
    let report = serde_json::json!({ "store": store.url.to_string(), "runs": rows });
    output::result(global.json, &report, |_| report::human(&rows))
}

/// Measures the bare instruction and then every mode, for each number of threads.
async fn measure_all(store: &Arc<dyn Store>, args: Draws) -> Outcome<Vec<Row>> {
    let mut runs = Runs::new(args.threads.len() * (args.mode.len() + 1));
    let (args, mut rows) = (Arc::new(args), Vec::new());
    for &threads in &args.threads {
        let modes = args.mode.iter().copied().map(Some);
        let mut bare = None;
        for mode in std::iter::once(None).chain(modes) {
            let name = mode.map_or_else(|| "bare".to_owned(), |mode| spelled(&mode));
            let plan = Measurement::new(threads, args.ids, args.duration);
            let run = measured(store.clone(), args.clone(), mode, plan.clone());
            let (seen, counts) = runs.run(&format!("{name} x {threads}"), &plan, run).await?;
            let row = Row::new(name, threads, &seen, counts);
            let base = *bare.get_or_insert(row.ns_per_id);
            rows.push(row.beside(base));
        }
    }
    Ok(rows)
}

/// Opens a sequence in this mode and measures draws from it; without a mode, measures the bare instruction.
async fn measured(
    store: Arc<dyn Store>,
    args: Arc<Draws>,
    mode: Option<Drawing>,
    plan: Arc<Measurement>,
) -> Result<(Totals, Counts)> {
    let Some(mode) = mode else {
        let counter = bare::Counter::default();
        return Ok((off_runtime(move || measure(&plan, || Ok(&counter))).await?, Counts::default()));
    };
    // Use a new instance for each measurement: an open sequence keeps its settings.
    let sequences = Sequences::new(store)?;
    let allocator = open(&sequences, &args, mode).await?;
    allocator.warm(1).await?;
    let ids = allocator.clone();
    let seen = off_runtime(move || draw(&ids, &args, mode, &plan)).await?;
    let counts = Counts::of(&allocator.snapshot());
    sequences.close().await;
    Ok((seen, counts))
}

async fn open(sequences: &Sequences, args: &Draws, mode: Drawing) -> Result<Allocator<u64>> {
    let (order, watermark) = match mode {
        Drawing::Global => (Order::Global, 0),
        Drawing::Batch => (Order::Process, 0),
        Drawing::Thread | Drawing::Block => (Order::Thread, args.step / 2),
        Drawing::Handle | Drawing::Shared | Drawing::Take | Drawing::Async => (Order::Process, args.step / 2),
    };
    let sequence = sequences.sequence::<u64>(SEQUENCE).order(order).block_size(args.block);
    sequence.step(args.step).watermark(watermark).timeout(TIMEOUT).await
}

fn draw(allocator: &Allocator<u64>, args: &Draws, mode: Drawing, plan: &Measurement) -> Result<Totals> {
    match mode {
        Drawing::Handle | Drawing::Batch => measure(plan, || Ok(allocator.handle())),
        Drawing::Shared | Drawing::Thread | Drawing::Global => measure(plan, || Ok(allocator)),
        Drawing::Block => measure(plan, || allocator.block(args.block)),
        Drawing::Take => measure(plan, || Ok(Take { allocator, ids: args.take })),
        Drawing::Async => measure(plan, || {
            let none = |error| {
                Error::new(ErrorKind::Unavailable, "cannot start a runtime for a thread").because(error)
            };
            let runtime = Builder::new_current_thread().enable_time().build().map_err(none)?;
            Ok(Future_ { allocator, runtime })
        }),
    }
}

/// The sum of all threads.
#[derive(Debug)]
struct Totals {
    ids: u64,
    /// The time from the common start to the end of the slowest thread.
    elapsed: Duration,
    /// Latencies of draws in nanoseconds.
    draws: Histogram<u64>,
}

/// Draws on all threads at the same time.
fn measure<D: Draw>(plan: &Measurement, make: impl Fn() -> Result<D> + Sync) -> Result<Totals> {
    let clock = clock();
    let (each, elapsed) = plan.on_threads(make, |mut draw, since| work(plan, clock, &mut draw, since))?;
    let mut seen = Totals { ids: 0, elapsed, draws: times() };
    for (ids, draws) in each {
        seen.ids += ids;
        seen.draws.add(draws).expect("both histograms have the same range");
    }
    Ok(seen)
}

/// Draws in blocks. Only the first draw of a block is timed, and represents the others. Draws that wait are
/// timed individually.
fn work<D: Draw>(
    plan: &Measurement,
    clock: u64,
    draw: &mut D,
    since: Instant,
) -> Result<(u64, Histogram<u64>)> {
    let mut seen = times();
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

/// Makes up to `draws` draws; fewer if waits exceeded the time limit. Returns the number of draws.
#[inline]
fn block<D: Draw>(
    goal: Goal,
    clock: u64,
    draw: &mut D,
    draws: u64,
    since: Instant,
    seen: &mut Histogram<u64>,
) -> Result<u64> {
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

/// Returns the time between two consecutive clock readings in nanoseconds: the median of many.
fn clock() -> u64 {
    median(std::array::from_fn::<_, 1001, _>(|_| nanos(Instant::now().elapsed())))
}

fn median<const N: usize>(mut values: [u64; N]) -> u64 {
    values.sort_unstable();
    values[N / 2]
}

#[cfg(test)]
mod tests;
