//! The first id, the last one, and none after it.

use std::sync::Arc;

use idmill::store::{Bounds, Reserve};
use idmill::{ErrorKind, IdRange, SequenceName};

use crate::client::Client;
use crate::context::Context;
use crate::ledger::Ledger;
use crate::outcome::{Outcome, check, fail};

/// Repeats `request` until the sequence is exhausted, and checks that every id from `start` to `last` was
/// granted once.
async fn drain(context: &Context, client: &Client, request: &Reserve, start: u64, last: u64) -> Outcome {
    let ledger = Ledger::default();
    // This limit is reached only if grants make no progress.
    for _ in 0..1000 {
        if client.granted_or_exhausted(&ledger, request).await?.is_none() {
            break;
        }
    }
    ledger.sound(context.windowed())?;
    ledger.disjoint()?;
    let mut ranges: Vec<IdRange> = ledger.grants().iter().map(|grant| grant.range).collect();
    ranges.sort_by_key(IdRange::start);
    let (first, end) = (ranges.first().map(IdRange::start), ranges.last().map(IdRange::end));
    check!(first == Some(start), "the first id is {first:?} instead of {start}");
    check!(end == Some(u128::from(last) + 1), "ids below {end:?} were granted, but the last id is {last}");
    let all = u128::from(last) + 1 - u128::from(start);
    check!(ledger.ids() == all, "{} of {all} ids were granted", ledger.ids());
    for _ in 0..3 {
        client.refused(request, ErrorKind::Exhausted).await?;
    }
    Ok(())
}

async fn bounded(
    context: &Context,
    label: &str,
    start: u64,
    last: u64,
    count: u64,
) -> Outcome<(Client, SequenceName)> {
    let (client, name) = (context.connect().await?, context.name(label));
    let bounds = Bounds::new(start, last)?;
    let created = client.create(&name, bounds).await??;
    check!(created.next == Some(start), "created with start {start}, but next is {:?}", created.next);
    check!(created.bounds == bounds, "created with {bounds:?}, but the store returned {:?}", created.bounds);
    drain(context, &client, &context.request(&name, count), start, last).await?;
    let info = client.look(&name).await?;
    check!(info.next.is_none() && info.remaining() == 0, "exhausted, but next is {:?}", info.next);
    // The sequence stays exhausted, for other clients too.
    context.connect().await?.refused(&context.request(&name, 1), ErrorKind::Exhausted).await?;
    Ok((client, name))
}

pub(super) async fn first_to_last(context: Arc<Context>) -> Outcome {
    for (start, last, count) in [(1, 10, 3), (0, 4, 5), (7, 7, 1), (1_000, 1_040, 41), (0, 0, 9)] {
        bounded(&context, &format!("{start}-{last}"), start, last, count).await?;
    }
    Ok(())
}

pub(super) async fn end_of_i32(context: Arc<Context>) -> Outcome {
    let last = u64::from(i32::MAX.unsigned_abs());
    bounded(&context, "i32", last - 9, last, 4).await.map(drop)
}

pub(super) async fn end_of_the_store(context: Arc<Context>) -> Outcome {
    let last = context.setup.largest;
    bounded(&context, "last", last - 9, last, 4).await?;
    if last < u64::MAX {
        let (client, name) = (context.connect().await?, context.name("beyond"));
        match client.create(&name, Bounds::new(1, last + 1)?).await? {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {}
            other => fail!("a max above the largest id of the store was not rejected: {other:?}"),
        }
    }
    Ok(())
}

pub(super) async fn ceiling(context: Arc<Context>) -> Outcome {
    let (client, name) = (context.connect().await?, context.name("ceiling"));
    client.create(&name, Bounds::new(1, 100)?).await??;
    let low = context.request(&name, 8).ceiling(20);
    drain(&context, &client, &low, 1, 20).await?;
    // Callers with a higher ceiling still get ids.
    drain(&context, &client, &context.request(&name, 30), 21, 100).await
}

pub(super) async fn creation_below_the_ceiling(context: Arc<Context>) -> Outcome {
    let (client, name) = (context.connect().await?, context.name("below"));
    let request = context.request(&name, 1).ceiling(9).create(Bounds::new(10, 20)?);
    client.refused(&request, ErrorKind::Exhausted).await?;
    // The store may or may not create the sequence now, but must not lose any of its ids.
    drain(&context, &client, &request.ceiling(u64::MAX), 10, 20).await
}

pub(super) async fn stored_bounds_win(context: Arc<Context>) -> Outcome {
    let (client, name) = (context.connect().await?, context.name("bounds"));
    client.create(&name, Bounds::new(50, 60)?).await??;
    let other = context.request(&name, 4).create(Bounds::new(1, 1000)?);
    drain(&context, &client, &other, 50, 60).await
}

pub(super) async fn large_counts(context: Arc<Context>) -> Outcome {
    let (client, name, ledger) = (context.connect().await?, context.name("large"), Ledger::default());
    let largest = context.setup.largest;
    for count in [1, u64::from(u16::MAX), u64::from(u32::MAX), 1 << 40, 3, largest / 4] {
        client.granted(&ledger, &context.request(&name, count)).await?;
    }
    ledger.sound(context.windowed())?;
    ledger.disjoint()?;
    let info = client.look(&name).await?;
    ledger.accounted(&info, context.window())?;
    // Request more ids than are left: the remaining ids are granted, without an overflow.
    let all = context.request(&name, u64::MAX);
    // Draw concurrently: from a window that prepares ranges of a fixed size, a single caller might always get
    // a prepared range, and never reserve its large count.
    let draw = || client.granted_or_exhausted(&ledger, &all);
    for _ in 0..1000 {
        let (first, second, third) = tokio::join!(draw(), draw(), draw());
        if first?.is_none() | second?.is_none() | third?.is_none() {
            break;
        }
    }
    ledger.sound(context.windowed())?;
    ledger.disjoint()?;
    check!(ledger.ids() == u128::from(largest), "{} of {largest} ids were granted", ledger.ids());
    client.refused(&all, ErrorKind::Exhausted).await
}
