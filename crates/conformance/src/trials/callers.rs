//! The behaviour of callers, and the declared capabilities.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use idmill::store::{Bounds, Change, Durability, GiveBack, Grant, Identity, MemoryStore, Reserve, Store};
use idmill::{Error, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::context::Context;
use crate::ledger::{Ledger, Reply, now};
use crate::outcome::{Outcome, Stop, check, fail};
use crate::tracker::Tracker;

/// Polls a future at most this number of times.
async fn polled<T>(future: impl Future<Output = T>, times: u64) -> Option<T> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

pub(super) async fn cancelled_reserves(context: Arc<Context>) -> Outcome {
    let (client, ledger, name) = (context.connect().await?, Ledger::default(), context.name("cancelled"));
    let begun = Instant::now();
    for _ in 0..5 {
        client.granted(&ledger, &context.request(&name, 1)).await?;
    }
    let usual = u64::try_from(begun.elapsed().as_micros() / 5).expect("not that long");
    let mut tracker = Tracker::new(&client.look(&name).await?)?;
    for round in 0..40 {
        let Some(count) = tracker.count() else { break };
        let request = context.request(&name, count);
        let began = now();
        let reserve = client.store().reserve(&request);
        let limit = context.setup.timeouts.call;
        let answer = if round % 2 == 0 {
            let answer = timeout(limit, polled(reserve, 1 + round / 2 % 6)).await;
            answer.map_err(|_| {
                Stop::Failed(format!("after dropped reserves, a reserve was not answered within {limit:?}"))
            })?
        } else {
            timeout(Duration::from_micros(context.random(0..=2 * usual)), reserve).await.ok()
        };
        let reply = match answer {
            Some(Ok(grant)) => Reply::Granted(grant),
            Some(Err(error)) => Reply::Failed(error.kind(), error.to_string()),
            None => Reply::Silent,
        };
        tracker.note(&reply);
        ledger.add(client.entry(began, &request, reply));
        if round % 5 == 4 {
            client.granted(&ledger, &context.request(&context.name("other"), 1)).await?;
        }
    }
    let Some(count) = tracker.count() else { fail!("none of 40 reserves was granted") };
    let after = client.reserve(&context.request(&name, count)).await??;
    tracker.note(&Reply::Granted(after));
    ledger.sound(context.windowed())?;
    ledger.disjoint()?;
    if context.windowed() { Ok(()) } else { tracker.look(&client).await.map(drop) }
}

pub(super) async fn batches(context: Arc<Context>) -> Outcome {
    let client = context.connect().await?;
    check!(client.reserve_many(&[]).await?.is_empty(), "an empty batch returned answers");
    let [one, spent, low, two] = ["one", "spent", "low", "two"].map(|label| context.name(label));
    client.create(&one, Bounds::new(1_000, 1_999)?).await??;
    client.create(&spent, Bounds::new(5, 5)?).await??;
    client.reserve(&context.request(&spent, 1)).await??;
    client.create(&low, Bounds::new(3_000, 3_999)?).await??;
    let created_below = context.request(&two, 4).create(Bounds::new(4_000, 4_999)?);
    let requests = [
        context.request(&one, 10),
        context.request(&spent, 1),
        context.request(&low, 3).ceiling(100),
        created_below.clone(),
        context.request(&one, 20),
        context.request(&low, 5),
    ];
    let answers = client.reserve_many(&requests).await?;
    let shown: Vec<_> = answers
        .iter()
        .map(|answer| {
            answer.as_ref().map(|grant| (grant.range.start(), grant.range.len())).map_err(Error::kind)
        })
        .collect();
    let spent_error = Err(ErrorKind::Exhausted);
    let expected =
        [Ok((1_000, 10)), spent_error, spent_error, Ok((4_000, 4)), Ok((1_010, 20)), Ok((3_000, 5))];
    check!(shown == expected, "answers {shown:?} instead of {expected:?}");
    Ok(())
}

/// Simultaneous batches in different orders: no duplicates, and no deadlock.
pub(super) async fn batches_at_once(context: Arc<Context>) -> Outcome {
    let names: Vec<_> = (0..6).map(|number| context.name(&format!("batch{number}"))).collect();
    let ledgers: Vec<Ledger> = names.iter().map(|_| Ledger::default()).collect();
    let mut running: JoinSet<Outcome> = JoinSet::new();
    for (lane, client) in context.connect_many(4).await?.into_iter().enumerate() {
        let (context, names, ledgers) = (context.clone(), names.clone(), ledgers.clone());
        running.spawn(async move {
            for round in 0..15 {
                let mut order: Vec<_> = (0..names.len()).collect();
                order.rotate_left((lane + round) % names.len());
                if lane % 2 == 1 {
                    order.reverse();
                }
                let requests: Vec<_> =
                    order.iter().map(|&at| context.request(&names[at], 1 + lane as u64)).collect();
                let began = now();
                let answers = client.reserve_many(&requests).await?;
                check!(
                    answers.len() == requests.len(),
                    "{} answers to {} requests",
                    answers.len(),
                    requests.len()
                );
                for ((at, request), answer) in order.into_iter().zip(requests).zip(answers) {
                    let reply = match answer {
                        Ok(grant) => Reply::Granted(grant),
                        Err(error) => Reply::Failed(error.kind(), error.to_string()),
                    };
                    ledgers[at].add(client.entry(began, &request, reply));
                }
            }
            Ok(())
        });
    }
    while let Some(outcome) = running.join_next().await {
        outcome??;
    }
    let client = context.connect().await?;
    for (name, ledger) in names.iter().zip(&ledgers) {
        ledger.disjoint()?;
        ledger.one_identity()?;
        ledger.sound(context.windowed())?;
        ledger.passing()?;
        ledger.accounted(&client.look(name).await?, context.window())?;
    }
    Ok(())
}

pub(super) async fn capabilities_are_coherent(context: Arc<Context>) -> Outcome {
    let (one, other) = (context.connect().await?, context.connect().await?);
    let declared = one.capabilities();
    check!(
        declared == other.capabilities(),
        "the capabilities of two clients differ: {declared:?} and {:?}",
        other.capabilities()
    );
    let survives = context.setup.engine.as_ref().is_none_or(|engine| engine.survives_kill());
    let durable = declared.durability == Durability::Disk;
    check!(
        survives || !durable,
        "the store declares `durability: disk`, but the engine loses grants when it is killed"
    );
    let name = context.name("seen");
    let Grant { range, identity, .. } = one.reserve(&context.request(&name, 1)).await??;
    // Even a store that is not shared between processes is shared between the clients of a process.
    other.look(&name).await?;
    let back = GiveBack::new(name, identity, range);
    check!(
        declared.gives_back || !one.give_back(&back).await??,
        "the store declares `gives_back: false`, but {range:?} was taken back"
    );
    let record = one.kept(&back.name).await?.map_err(|error| error.kind());
    let unsupported = record == Err(ErrorKind::Unsupported);
    check!(
        declared.records != unsupported,
        "the store declares `records: {}`, but reading a record returned {record:?}",
        declared.records
    );
    Ok(())
}

/// The same random calls to the store and to the memory store have the same results.
pub(super) async fn as_the_reference(context: Arc<Context>) -> Outcome {
    let (client, reference) = (context.connect().await?, MemoryStore::new());
    let names = ["one", "two"].map(|label| context.name(label));
    // Maps the store's incarnations to those of the reference.
    let mut pairs: Vec<(u64, u64)> = Vec::new();
    let mut same = |theirs: Identity, ours: Identity| {
        let known = pairs.iter().find(|(a, b)| *a == theirs.incarnation || *b == ours.incarnation);
        let pair = (theirs.incarnation, ours.incarnation);
        let fits = known.is_none_or(|known| *known == pair);
        if known.is_none() {
            pairs.push(pair);
        }
        fits && theirs.epoch == ours.epoch
    };
    for round in 0..150 {
        let name = &names[usize::try_from(context.random(0..=1)).expect("small")];
        let number = || context.random(0..=60);
        match context.random(0..=9) {
            0..=5 => {
                let bounds = Bounds::new(5, 5 + number())?;
                let request = Reserve::new(name.clone(), 1 + number() / 6).ceiling(number()).create(bounds);
                let (theirs, ours) = (client.reserve(&request).await?, reference.reserve(&request).await);
                match (&theirs, &ours) {
                    (Ok(theirs), Ok(ours)) => {
                        let equal = (theirs.range, theirs.bounds) == (ours.range, ours.bounds);
                        check!(
                            equal && same(theirs.identity, ours.identity),
                            "{round}: {request:?}: {theirs:?}, not {ours:?}"
                        );
                    }
                    (Err(theirs), Err(ours)) if theirs.kind() == ours.kind() => {}
                    _ => fail!("call {round}: {request:?} returned {theirs:?} instead of {ours:?}"),
                }
            }
            6..=8 => {
                let pick = |value| (context.random(0..=2) > 0).then_some(value);
                let change = Change::new()
                    .next(pick(number()))
                    .max(pick(number()))
                    .backwards(context.random(0..=1) == 0)
                    .expect(None);
                let (theirs, ours) = (client.set(name, change).await?, reference.set(name, change).await);
                match (&theirs, &ours) {
                    (Ok(theirs), Ok(ours)) => {
                        let equal = (theirs.next, theirs.bounds) == (ours.next, ours.bounds);
                        check!(
                            equal && same(theirs.identity, ours.identity),
                            "{round}: {change:?}: {theirs:?}, not {ours:?}"
                        );
                    }
                    (Err(theirs), Err(ours)) if theirs.kind() == ours.kind() => {}
                    _ => fail!("call {round}: {change:?} returned {theirs:?} instead of {ours:?}"),
                }
            }
            _ => {
                let (theirs, ours) = (client.remove(name).await??, reference.remove(name, None).await?);
                check!(theirs == ours, "call {round}: remove returned {theirs} instead of {ours}");
            }
        }
        let (theirs, ours) = (client.inspect(name).await??, reference.inspect(name).await?);
        let shown =
            |info: &Option<idmill::store::SequenceInfo>| info.as_ref().map(|info| (info.next, info.bounds));
        check!(
            shown(&theirs) == shown(&ours),
            "after call {round}, {theirs:?} is stored instead of {ours:?}"
        );
    }
    Ok(())
}
