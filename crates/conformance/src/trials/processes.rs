//! Several concurrent real processes. Some are killed or paused.

use std::sync::Arc;

use idmill::store::Reserve;

use crate::context::Context;
use crate::order::{Job, Order};
use crate::outcome::{Outcome, check};
use crate::worker::{Books, Worker};

/// Maximum number of ids that a process with these orders can have in flight when it is killed.
const IN_FLIGHT: u64 = 2 * 14;

/// The order for a process that reserves from a healthy store.
fn order(context: &Context, request: &Reserve, times: u64) -> Order {
    Order {
        suite: context.setup.name.clone(),
        endpoint: context.endpoint(),
        job: Job::Reserve,
        request: request.clone(),
        tasks: 2,
        times,
        timeout: context.setup.timeouts.call,
    }
}

/// Starts all workers as simultaneously as possible, and waits until they are done.
async fn finish(context: &Context, mut workers: Vec<Worker>) -> Outcome {
    for worker in &mut workers {
        worker.begin()?;
    }
    for worker in workers {
        worker.finish(context.setup.timeouts.trial).await?;
    }
    Ok(())
}

pub(super) async fn disjoint_among_processes(context: Arc<Context>) -> Outcome {
    let (request, books) = (context.request(&context.name("processes"), 1), Books::default());
    let workers = Worker::start_many(&context, 4, &order(&context, &request, 30), &books).await?;
    finish(&context, workers).await?;
    let ledger = &books.ledger;
    ledger.disjoint()?;
    ledger.one_identity()?;
    ledger.sound(context.windowed())?;
    ledger.growing()?;
    check!(ledger.grants().len() > 200, "only {} of 240 reserves were granted", ledger.grants().len());
    ledger.accounted(&context.connect().await?.look(&request.name).await?, context.window())
}

pub(super) async fn creation_race_of_processes(context: Arc<Context>) -> Outcome {
    for round in 0..3 {
        let name = context.name(&format!("race{round}"));
        let (request, books) = (context.request(&name, 3), Books::default());
        let workers = Worker::start_many(&context, 5, &order(&context, &request, 1), &books).await?;
        finish(&context, workers).await?;
        books.ledger.disjoint()?;
        books.ledger.one_identity()?;
        books.ledger.accounted(&context.connect().await?.look(&name).await?, context.window())?;
    }
    Ok(())
}

/// Waits until `more` further reserves have been granted.
async fn granted(context: &Context, books: &Books, more: usize) -> Outcome {
    let enough = books.ledger.grants().len() + more;
    let reached = || async { Ok((books.ledger.grants().len() >= enough).then_some(())) };
    context.until("reserves by other processes", reached).await
}

pub(super) async fn killed_clients(context: Arc<Context>) -> Outcome {
    const ROUNDS: u64 = 8;
    let (request, books) = (context.request(&context.name("killed"), 1), Books::default());
    let order = order(&context, &request, 0);
    let mut survivor = Worker::start(&context, &order, &books).await?;
    survivor.begin()?;
    for _ in 0..ROUNDS {
        let mut victim = Worker::start(&context, &order, &books).await?;
        victim.begin()?;
        granted(&context, &books, usize::try_from(context.random(3..=20)).expect("small")).await?;
        victim.kill().await;
    }
    granted(&context, &books, 20).await?;
    survivor.end(context.setup.timeouts.recovery).await?;
    books.ledger.disjoint()?;
    books.ledger.one_identity()?;
    books.ledger.passing()?;
    let info = context.connect().await?.look(&request.name).await?;
    books.ledger.accounted(&info, context.window() + ROUNDS * IN_FLIGHT)
}

pub(super) async fn paused_clients(context: Arc<Context>) -> Outcome {
    let (request, books) = (context.request(&context.name("paused"), 1), Books::default());
    let order = order(&context, &request, 0);
    let mut workers = Worker::start_many(&context, 2, &order, &books).await?;
    for worker in &mut workers {
        worker.begin()?;
    }
    let other = context.connect().await?;
    for round in 0..4 {
        granted(&context, &books, usize::try_from(context.random(5..=30)).expect("small")).await?;
        let paused = &workers[round % 2];
        paused.pause();
        // The pause is longer than the timeouts of the paused process. Others continue.
        let until = tokio::time::Instant::now() + context.setup.timeouts.pause;
        while tokio::time::Instant::now() < until {
            other.record(&books.ledger, &request, context.setup.timeouts.call).await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        paused.resume();
        granted(&context, &books, 20).await?;
    }
    for worker in workers {
        worker.end(context.setup.timeouts.recovery).await?;
    }
    books.ledger.disjoint()?;
    books.ledger.one_identity()?;
    books.ledger.passing()?;
    let info = context.connect().await?.look(&request.name).await?;
    books.ledger.accounted(&info, context.window())
}
