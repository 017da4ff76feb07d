//! Give-backs: unused ids are taken back once, only from their owner, and granted again.

use std::sync::Arc;

use idmill::store::{Change, GiveBack, Grant, SequenceInfo};
use idmill::{Result, SequenceName, Status};
use tokio::task::JoinSet;

use super::cuts::{Scene, rounds};
use crate::client::Client;
use crate::context::Context;
use crate::ledger::{Ledger, Reply, now};
use crate::outcome::{Outcome, check};

/// Ids per reserve. The first few are kept, and the rest is given back.
const LEN: u64 = 10;

/// A grant without its first ids.
fn rest(name: &SequenceName, mut grant: Grant, kept: u64) -> GiveBack {
    let _ = grant.range.take_front(kept);
    GiveBack::new(name.clone(), grant.identity, grant.range)
}

async fn granted(context: &Context, client: &Client, name: &SequenceName) -> Outcome<Grant> {
    Ok(client.reserve(&context.request(name, LEN)).await??)
}

fn next_is(info: &SequenceInfo, expected: u64, after: &str) -> Outcome {
    check!(info.next == Some(expected), "{after}, next is {:?} instead of {expected}", info.next);
    Ok(())
}

pub(super) async fn rests_are_granted_again(context: Arc<Context>) -> Outcome {
    let (client, other) = (context.connect().await?, context.connect().await?);
    let name = context.name("again");
    for kept in [3, 0, 9] {
        let grant = granted(&context, &client, &name).await?;
        let back = rest(&name, grant, kept);
        check!(
            client.give_back(&back).await??,
            "{:?} is at the end of the reserved ids, but was not taken back",
            back.rest
        );
        let again = granted(&context, &other, &name).await?.range;
        check!(
            again.start() == back.rest.start(),
            "{:?} was taken back, but {again:?} was granted next",
            back.rest
        );
    }
    let name = context.name("last");
    let last = context.setup.largest;
    client.create(&name, idmill::store::Bounds::new(last - LEN + 1, last)?).await??;
    let back = rest(&name, granted(&context, &client, &name).await?, 1);
    check!(client.give_back(&back).await??, "the last ids of a sequence were not taken back");
    next_is(&other.look(&name).await?, last - LEN + 2, "after the last ids were taken back")?;
    several_are_granted_again(&context, &client).await
}

/// Gives back rests of three sequences in one call. The second one is not at the end of its sequence.
async fn several_are_granted_again(context: &Context, client: &Client) -> Outcome {
    let (mut backs, mut expected) = (Vec::new(), Vec::new());
    for (kept, of) in [(3, "several-1"), (4, "several-2"), (5, "several-3")] {
        let name = context.name(of);
        let grant = granted(context, client, &name).await?;
        backs.push(rest(&name, grant, kept));
        expected.push(grant.range.start() + kept);
    }
    let later = granted(context, client, &backs[1].name).await?;
    expected[1] = later.range.start() + LEN;
    let taken = client.give_back_many(&backs).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    check!(
        taken == [true, false, true],
        "of three rests, {taken:?} were taken back, not the first and the last"
    );
    for (back, next) in backs.iter().zip(expected) {
        next_is(&client.look(&back.name).await?, next, "after rests of several sequences were taken back")?;
    }
    Ok(())
}

/// Checks that the give-back is refused, and changes nothing.
async fn refused(client: &Client, back: &GiveBack, why: &str) -> Outcome {
    let before = client.inspect(&back.name).await??;
    let taken = client.give_back(back).await??;
    check!(!taken, "{:?} was taken back, although {why}", back.rest);
    let after = client.inspect(&back.name).await??;
    check!(before == after, "{:?} was refused, but {before:?} is now {after:?}", back.rest);
    Ok(())
}

pub(super) async fn rests_of_others_stay(context: Arc<Context>) -> Outcome {
    let (client, other) = (context.connect().await?, context.connect().await?);
    let name = context.name("others");
    let grant = granted(&context, &client, &name).await?;
    let back = rest(&name, grant, 3);
    let unknown = GiveBack::new(context.name("unknown"), back.identity, back.rest);
    refused(&client, &unknown, "there is no such sequence").await?;
    let mut shorter = back.clone();
    shorter.rest = shorter.rest.take_front(4);
    refused(&client, &shorter, "it is not the end of the granted range").await?;
    granted(&context, &other, &name).await?;
    refused(&client, &back, "others have reserved after it").await?;
    // Reset the sequence, so that the same ids are granted again.
    let start = Some(grant.range.start());
    client.set(&name, Change::new().next(start).backwards(true)).await??;
    granted(&context, &other, &name).await?;
    refused(&client, &back, "the sequence has been reset since").await?;
    client.remove(&name).await??;
    granted(&context, &other, &name).await?;
    refused(&client, &back, "the sequence was removed and created again").await?;
    let back = rest(&name, granted(&context, &client, &name).await?, 3);
    check!(
        client.give_back(&back).await??,
        "{:?} is at the end of the reserved ids, but was not taken back",
        back.rest
    );
    granted(&context, &other, &name).await?;
    refused(&client, &back, "it was already taken back, then granted to another client").await
}

pub(super) async fn rests_at_once(context: Arc<Context>) -> Outcome {
    let (ledger, name) = (Ledger::default(), context.name("at-once"));
    let mut running: JoinSet<Outcome<u32>> = JoinSet::new();
    for client in context.connect_many(4).await? {
        let (context, ledger, name) = (context.clone(), ledger.clone(), name.clone());
        running.spawn(async move { reserve_and_give_back(&context, &client, &name, &ledger).await });
    }
    let mut taken = 0;
    while let Some(outcome) = running.join_next().await {
        taken += outcome??;
    }
    check!(taken > 0, "no unused range was taken back: the trial proves nothing");
    ledger.disjoint()
}

/// Keeps and records the front of each grant, and gives the rest back. Returns the number of ranges that
/// the store took back.
async fn reserve_and_give_back(
    context: &Context,
    client: &Client,
    name: &SequenceName,
    ledger: &Ledger,
) -> Outcome<u32> {
    let mut taken = 0;
    for round in 0..30 {
        let (began, count) = (now(), LEN + round % 3);
        let request = context.request(name, count);
        let mut grant = client.reserve(&request).await??;
        let back = rest(name, grant, 1 + round % 4);
        // If the outcome of a give-back is unknown, the owner no longer uses the ids, as in an allocator.
        taken += u32::from(client.give_back(&back).await?.is_ok_and(|taken| taken));
        grant.range = grant.range.take_front(1 + round % 4);
        ledger.add(client.entry(began, &request, Reply::Granted(grant)));
    }
    Ok(taken)
}

/// A give-back through a connection that breaks: the store reports the outcome correctly.
pub(super) async fn rests_through_cuts(context: Arc<Context>) -> Outcome {
    let (mut scene, name) = (Scene::new(context.clone()).await?, context.name("cut"));
    for (round, cut) in (0..).zip(rounds().chain(rounds())) {
        let grant = context.until("a reserve after a cut", || async {
            Ok(scene.client.reserve(&context.request(&name, LEN)).await.ok().and_then(Result::ok))
        });
        let back = rest(&name, grant.await?, 1 + round % 5);
        let call = async |client: &Client| client.store().give_back(&back).await;
        let outcome = scene.through(cut, call).await?;
        is_true(&scene.observer.look(&name).await?, &back, &outcome)?;
    }
    scene.proven()
}

fn is_true(info: &SequenceInfo, back: &GiveBack, outcome: &Result<bool>) -> Outcome {
    let moved = info.next == Some(back.rest.start());
    let claimed = match outcome {
        Ok(taken) => *taken,
        Err(error) if error.kind().status() == Status::Unknown => return Ok(()),
        Err(_) => false,
    };
    check!(claimed == moved, "giving back {:?} returned {outcome:?}, but next is {:?}", back.rest, info.next);
    Ok(())
}
