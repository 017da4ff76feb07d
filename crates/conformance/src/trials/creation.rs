//! The creation of a sequence by one or several clients.

use std::sync::Arc;

use idmill::ErrorKind;
use idmill::store::{Bounds, Reserve};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::context::Context;
use crate::ledger::Ledger;
use crate::outcome::{Outcome, check, fail};

pub(super) async fn creation_race(context: Arc<Context>) -> Outcome {
    let clients = context.connect_many(8).await?;
    for round in 0..5 {
        let name = context.name(&format!("race{round}"));
        let (ledger, request) = (Ledger::default(), context.request(&name, 5));
        let mut racing: JoinSet<Outcome> = JoinSet::new();
        for client in clients.clone() {
            let (ledger, request) = (ledger.clone(), request.clone());
            racing.spawn(async move { client.granted(&ledger, &request).await.map(drop) });
        }
        while let Some(outcome) = racing.join_next().await {
            outcome??;
        }
        ledger.disjoint()?;
        ledger.sound(context.windowed())?;
        ledger.one_identity()?;
        ledger.accounted(&clients[0].look(&name).await?, context.window())?;
    }
    Ok(())
}

pub(super) async fn create_race(context: Arc<Context>) -> Outcome {
    let clients = context.connect_many(8).await?;
    for round in 0..5 {
        let name = context.name(&format!("create{round}"));
        let mut racing = JoinSet::new();
        for (number, client) in (1..).zip(clients.clone()) {
            let name = name.clone();
            let bounds = Bounds::new(number, 1000 + number)?;
            racing.spawn(async move { client.create(&name, bounds).await });
        }
        let mut created = Vec::new();
        while let Some(outcome) = racing.join_next().await {
            match outcome?? {
                Ok(info) => created.push(info),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    fail!("the loser got {} instead of already_exists: {error}", error.kind().as_str())
                }
            }
        }
        check!(created.len() == 1, "{} of 8 concurrent creates succeeded, not 1", created.len());
        let stored = clients[0].look(&name).await?;
        check!(stored == created[0], "created {:?}, stored {stored:?}", created[0]);
    }
    Ok(())
}

/// The removal is not tested with a window, which still has ids that were reserved before it.
pub(super) async fn created_only_if_asked(context: Arc<Context>) -> Outcome {
    let (client, other) = (context.connect().await?, context.connect().await?);
    let name = context.name("lost");
    let held = context.request(&name, 5).create(None);
    is_not_made(&client, &held).await?;
    client.create(&name, context.bounds()).await??;
    client.reserve(&held).await??;
    other.reserve(&held).await??;
    if context.windowed() {
        return Ok(());
    }
    // Clients that have used the sequence do not create it again either.
    client.remove(&name).await??;
    is_not_made(&client, &held).await?;
    is_not_made(&other, &held).await?;
    let again = other.create(&name, context.bounds()).await??;
    let grant = client.reserve(&held).await??;
    check!(grant.identity == again.identity, "created as {again:?}, but {grant:?} was granted");
    Ok(())
}

async fn is_not_made(client: &Client, held: &Reserve) -> Outcome {
    client.refused(held, ErrorKind::NotFound).await?;
    if client.capabilities().batches {
        let answers = client.reserve_many(&[held.clone(), held.clone()]).await?;
        for answer in answers {
            let refused = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            check!(refused, "in a batch: expected not_found, got {answer:?}");
        }
    }
    check!(
        client.inspect(&held.name).await??.is_none(),
        "a reserve that requires an existing sequence created one"
    );
    Ok(())
}
