//! An engine that crashes, and one that does not respond.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::Reserve;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::ledger::{Ledger, Reply, now};
use crate::load;
use crate::outcome::{Outcome, check};

/// Clients that keep reserving, each with its own ledger.
struct Crowd {
    own: Vec<Ledger>,
    running: JoinSet<()>,
    request: Reserve,
}

impl Crowd {
    async fn gather(context: &Context, label: &str, timeout: Duration) -> Outcome<Self> {
        let request = context.request(&context.name(label), 7);
        let (mut own, mut running) = (Vec::new(), JoinSet::new());
        for client in context.connect_many(3).await? {
            let ledger = Ledger::default();
            running.spawn(load::stubborn(client, ledger.clone(), request.clone(), timeout));
            own.push(ledger);
        }
        Ok(Self { own, running, request })
    }

    /// Waits until every client has been granted `times` reserves that began after this call.
    async fn served(&self, context: &Context, what: &str, times: usize) -> Outcome {
        let begun = now();
        let enough = |ledger: &Ledger| {
            let fresh = |entry: &&_| {
                let entry: &crate::ledger::Entry = entry;
                entry.began > begun && matches!(entry.reply, Reply::Granted(_))
            };
            ledger.entries().iter().filter(fresh).count() >= times
        };
        let reached = || async { Ok(self.own.iter().all(enough).then_some(())) };
        context.until(what, reached).await
    }

    /// Ends the clients, and merges their ledgers.
    async fn dismiss(mut self) -> Ledger {
        self.running.shutdown().await;
        let all = Ledger::default();
        for ledger in self.own {
            ledger.entries().into_iter().for_each(|entry| all.add(entry));
        }
        all
    }
}

/// Number of times that the engine is killed.
const KILLS: u64 = 3;

/// Checks a sequence after faults, during which the engine itself may have skipped up to `skipped` ids.
/// Reserves that were in flight when the clients were stopped may have been applied.
async fn hold(context: &Context, crowd: Crowd, skipped: u64) -> Outcome {
    let name = crowd.request.name.clone();
    let cut_short = 3 * crowd.request.count;
    let ledger = crowd.dismiss().await;
    ledger.disjoint()?;
    ledger.one_identity()?;
    ledger.sound(context.windowed())?;
    ledger.passing()?;
    let info = context.connect().await?.look(&name).await?;
    ledger.accounted(&info, context.window() + cut_short + skipped)
}

pub(super) async fn killed_engine(context: Arc<Context>) -> Outcome {
    let engine = context.setup.engine.as_ref().expect("needed");
    let crowd = Crowd::gather(&context, "killed", context.setup.timeouts.pause).await?;
    for (reserves, _) in (10..).zip(0..KILLS) {
        crowd.served(&context, "reserves before the engine is killed", reserves).await?;
        engine.kill();
        engine.start().await?;
        crowd
            .served(&context, "reserves after the engine was killed, without reopening the store", 3)
            .await?;
    }
    let skipped = KILLS * context.setup.skipped_at_a_kill;
    hold(&context, crowd, skipped).await
}

pub(super) async fn paused_engine(context: Arc<Context>) -> Outcome {
    let engine = context.setup.engine.as_ref().expect("needed");
    let pause = context.setup.timeouts.pause;
    let crowd = Crowd::gather(&context, "paused", pause / 2).await?;
    for round in 0..2 {
        crowd.served(&context, "reserves before the engine is paused", 10 + round).await?;
        engine.pause();
        let paused = now();
        tokio::time::sleep(pause).await;
        let answered = |ledger: &Ledger| {
            let entries = ledger.entries();
            let during = |entry: &crate::ledger::Entry| entry.began > paused + 100_000_000;
            entries.into_iter().any(|entry| during(&entry) && matches!(entry.reply, Reply::Granted(_)))
        };
        let any = crowd.own.iter().any(answered);
        engine.resume();
        check!(
            !any || context.windowed(),
            "reserves were granted while the engine was paused: the trial proves nothing"
        );
        crowd
            .served(&context, "reserves after the engine was paused, without reopening the store", 3)
            .await?;
    }
    hold(&context, crowd, 0).await
}
