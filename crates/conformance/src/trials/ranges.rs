//! The central promise: ids are unique and in order, and none is lost.

use std::sync::Arc;

use idmill::store::Reserve;

use crate::context::Context;
use crate::ledger::Ledger;
use crate::load;
use crate::outcome::{Outcome, check, fail};

/// Maximum number of attempts until none of a load's reserves is in doubt.
const ATTEMPTS: usize = 5;

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

/// A busy engine may abandon a write without a fault. Then the trial runs again, with another sequence.
pub(super) async fn nothing_lost(context: Arc<Context>) -> Outcome {
    for attempt in 1..=ATTEMPTS {
        let (ledger, request) = load(&context, &format!("lost{attempt}")).await?;
        let info = context.connect().await?.look(&request.name).await?;
        ledger.accounted(&info, context.window())?;
        if ledger.doubtful() == 0 {
            return Ok(());
        }
    }
    fail!("in each of {ATTEMPTS} attempts, reserves had unknown outcomes without a fault")
}
