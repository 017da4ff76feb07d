//! Several real processes at once.

use crate::conformance::context::Context;
use crate::conformance::outcome::{Outcome, check};
use crate::conformance::worker::{Books, Job, Order, Worker};
use crate::store::Reserve;
use crate::sync::Arc;

/// What a process is to do that reserves from a healthy store.
fn order(context: &Context, request: &Reserve, times: u64) -> Order {
    Order {
        suite: context.setup.name.clone(),
        endpoint: context.endpoint(),
        job: Job::Reserve,
        request: request.clone(),
        tasks: 2,
        times,
        patience: context.setup.timeouts.call,
    }
}

pub(super) async fn disjoint_among_processes(context: Arc<Context>) -> Outcome {
    let (request, books) = (context.request(&context.name("processes"), 1), Books::default());
    let order = order(&context, &request, 30);
    let mut workers = Worker::start_many(&context, 4, &order, &books).await?;
    for worker in &mut workers {
        worker.begin()?;
    }
    for worker in workers {
        worker.finish(context.setup.timeouts.trial).await?;
    }
    let ledger = &books.ledger;
    ledger.disjoint()?;
    ledger.sound(context.windowed())?;
    ledger.growing()?;
    check!(ledger.grants().len() == 240, "{} of 240 reserves were granted", ledger.grants().len());
    let info = context.connect().await?.look(&request.name).await?;
    ledger.accounted(&info, context.window())
}
