//! `idmill draws`: how fast ids are drawn, beside the bare atomic instruction.

mod measure;
mod report;
mod ways;

use std::sync::Arc;

use idmill::store::Store;
use idmill::{Allocator, Error, ErrorKind, Order, Result, Sequences};
use tokio::runtime::Builder;

use self::measure::{Seen, measure};
use self::report::Row;
use self::ways::{Future_, Take, bare};
use crate::args::{Drawing, Draws, Global, spelled};
use crate::failure::{Failure, Outcome};
use crate::measuring::{Counts, Measurement, PATIENCE, Runs, off_runtime};
use crate::opening::Measured;
use crate::output;

const SEQUENCE: &str = "idmill-draws";

pub(super) async fn run(global: &Global, args: Draws) -> Outcome {
    if args.ids == Some(0) {
        return Err(Failure::usage("0 ids cannot be measured").hint("give --ids at least 1, or a --duration"));
    }
    let store = Measured::open(global, SEQUENCE).await?;
    output::note(global.json, &store.description);
    let rows = measure_all(&store.store, args).await?;
    let report = serde_json::json!({ "store": store.url.to_string(), "runs": rows });
    output::result(global.json, &report, |_| report::human(&rows))
}

/// The bare instruction and then every mode, for each number of threads.
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

/// A sequence opened as the mode wants it, drawn from, and looked at; without a mode, the bare instruction.
async fn measured(
    store: Arc<dyn Store>,
    args: Arc<Draws>,
    mode: Option<Drawing>,
    plan: Arc<Measurement>,
) -> Result<(Seen, Counts)> {
    let Some(mode) = mode else {
        let counter = bare::Counter::default();
        return Ok((off_runtime(move || measure(&plan, || Ok(&counter))).await?, Counts::default()));
    };
    // Anew for each measurement: settings belong to the open sequence.
    let sequences = Sequences::new(store)?;
    let allocator = open(&sequences, &args, mode).await?;
    allocator.warm().await?;
    let ids = allocator.clone();
    let seen = off_runtime(move || draw(&ids, &args, mode, &plan)).await?;
    let counts = Counts::of(&allocator.snapshot());
    sequences.close().await;
    Ok((seen, counts))
}

async fn open(sequences: &Sequences, args: &Draws, mode: Drawing) -> Result<Allocator> {
    let (order, watermark) = match mode {
        Drawing::Global => (Order::Global, 0),
        Drawing::Batch => (Order::Process, 0),
        Drawing::Thread | Drawing::Lease => (Order::Thread, args.step / 2),
        Drawing::Handle | Drawing::Shared | Drawing::Take | Drawing::Async => (Order::Process, args.step / 2),
    };
    let sequence = sequences.sequence::<u64>(SEQUENCE).order(order).lease_size(args.lease);
    sequence.step(args.step).watermark(watermark).patience(PATIENCE).await
}

fn draw(allocator: &Allocator, args: &Draws, mode: Drawing, plan: &Measurement) -> Result<Seen> {
    match mode {
        Drawing::Handle | Drawing::Batch => measure(plan, || Ok(allocator.handle())),
        Drawing::Shared | Drawing::Thread | Drawing::Global => measure(plan, || Ok(allocator)),
        Drawing::Lease => measure(plan, || allocator.lease(args.lease)),
        Drawing::Take => measure(plan, || Ok(Take { allocator, ids: args.take })),
        Drawing::Async => measure(plan, || {
            let none = |error| Error::new(ErrorKind::Unavailable, "no runtime for a thread").because(error);
            let runtime = Builder::new_current_thread().enable_time().build().map_err(none)?;
            Ok(Future_ { allocator, runtime })
        }),
    }
}
