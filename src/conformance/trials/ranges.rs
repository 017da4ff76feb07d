//! The promise itself: no id twice, in order, nothing lost.

use crate::conformance::context::Context;
use crate::conformance::ledger::Ledger;
use crate::conformance::load;
use crate::conformance::outcome::{Outcome, check};
use crate::store::Reserve;
use crate::sync::Arc;

/// Four clients with four tasks each.
async fn load(context: &Context, label: &str) -> Outcome<(Ledger, Reserve)> {
    let (ledger, request) = (Ledger::default(), context.request(&context.name(label), 1));
    load::healthy(context.connect_many(4).await?, 4, 15, &ledger, &request).await?;
    check!(ledger.grants().len() == 240, "{} grants instead of 240", ledger.grants().len());
    Ok((ledger, request))
}

pub(super) async fn disjoint_among_tasks(context: Arc<Context>) -> Outcome {
    let (ledger, _) = load(&context, "tasks").await?;
    ledger.disjoint()?;
    ledger.sound(context.windowed())
}

pub(super) async fn growing(context: Arc<Context>) -> Outcome {
    let (ledger, _) = load(&context, "growing").await?;
    ledger.growing()
}

pub(super) async fn nothing_lost(context: Arc<Context>) -> Outcome {
    let (ledger, request) = load(&context, "lost").await?;
    let info = context.connect().await?.look(&request.name).await?;
    check!(ledger.doubtful() == 0, "reserves are in doubt without a fault");
    ledger.accounted(&info, context.window())
}
