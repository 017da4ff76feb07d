//! One measurement: a sequence opened as the mode wants it, drawn from, and looked at.

use std::sync::Arc;

use idmill::store::Store;
use idmill::{Allocator, Order, Result, Sequences};
use tokio::runtime::Builder;

use super::measure::{Seen, measure};
use super::report::Row;
use super::ways::{Future_, PATIENCE, Take, bare};
use crate::args::{Drawing, Draws};
use crate::measuring::{Measurement, off_runtime};

pub(super) const SEQUENCE: &str = "idmill-draws";

#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    Bare,
    Mode(Drawing),
}

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Mode(mode) => mode.name(),
        }
    }
}

pub(super) async fn run(
    store: Arc<dyn Store>,
    args: &Arc<Draws>,
    subject: Subject,
    plan: &Arc<Measurement>,
) -> Result<Row> {
    let Subject::Mode(mode) = subject else {
        let of_threads = plan.clone();
        let seen = off_runtime(move || {
            let counter = bare::Counter::default();
            measure(&of_threads, || Ok(&counter))
        });
        return Ok(Row::new(subject.name(), plan.threads, &seen.await?, None));
    };
    // Anew for each measurement: settings belong to the open sequence.
    let sequences = Sequences::new(store)?;
    let allocator = open(&sequences, args, mode).await?;
    allocator.warm().await?;
    let (of_threads, args, ids) = (plan.clone(), args.clone(), allocator.clone());
    let seen = off_runtime(move || draw(&ids, &args, mode, &of_threads)).await?;
    let row = Row::new(subject.name(), plan.threads, &seen, Some(&allocator.snapshot()));
    sequences.close().await;
    Ok(row)
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
            let runtime = Builder::new_current_thread().enable_time().build();
            Ok(Future_ { allocator, runtime: runtime.map_err(no_runtime)? })
        }),
    }
}

fn no_runtime(error: std::io::Error) -> idmill::Error {
    idmill::Error::new(idmill::ErrorKind::Unavailable, "no runtime for a thread").because(error)
}
