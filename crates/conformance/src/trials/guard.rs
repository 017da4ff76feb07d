//! Stores that are rolled back, and witnesses that detect it.

use std::sync::Arc;

use idmill::store::{Bounds, Change, MemoryStore, Reserve, Store as _};
use idmill::{ErrorKind, IdRange};
use idmill_guard::{Guarded, Ledger, MemoryWitness, StoreWitness};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::context::Context;
use crate::draws::Drawn;
use crate::outcome::{Outcome, check, fail};

pub(super) async fn is_guarded(context: Arc<Context>) -> Outcome {
    let (client, name) = (context.connect().await?, context.name("guarded"));
    let witness = Arc::new(MemoryWitness::new());
    let guarded = client.of(Guarded::new(client.store().clone(), witness.clone()));
    client.create(&name, Bounds::new(1, 1_000_000)?).await??;
    let request = context.request(&name, 10);
    let first = guarded.reserve(&request).await??;
    // Simulate a store that has gone back by a hundred ids.
    let claimed = IdRange::new(first.range.last().unwrap_or_default() + 1, 100).expect("far from the end");
    let ahead = Ledger::claim(witness.ledger(&name).as_ref(), first.identity, claimed);
    witness.set_ledger(&name, ahead.ok());
    let grant = guarded.reserve(&request).await??;
    check!(u128::from(grant.range.start()) >= claimed.end(), "{:?} was granted again", grant.range);
    let next = client.look(&name).await?.next;
    check!(
        next.is_some_and(|next| u128::from(next) >= grant.range.end()),
        "next {next:?} is below the end of the granted range"
    );

    let reset = Change::new().next(1).backwards(true);
    client.set(&name, reset).await??;
    let grant = guarded.reserve(&request).await??;
    check!(grant.identity.epoch == first.identity.epoch + 1, "a reset was not detected: {grant:?}");
    check!(u128::from(grant.range.start()) >= claimed.end(), "{:?} was granted again", grant.range);
    guarded.set(&name, reset).await??;
    let grant = guarded.reserve(&request).await??;
    check!(grant.range.start() == 1, "a reset through the guard had no effect: {grant:?}");

    // Remove the sequence without the guard, as if the database had been emptied or replaced.
    check!(client.remove(&name).await??, "remove did not find the sequence");
    client.create(&name, Bounds::new(1, 1_000_000)?).await??;
    match guarded.reserve(&request).await? {
        Err(error) if error.kind() == ErrorKind::StoreViolation => {}
        other => fail!("expected store_violation for a recreated sequence, got {other:?}"),
    }
    check!(guarded.remove(&name).await??, "remove did not find the sequence");
    client.create(&name, Bounds::new(1, 1_000_000)?).await??;
    let next = guarded.reserve(&request).await??;
    check!(
        u128::from(next.range.start()) >= grant.range.end(),
        "{:?} repeats ids of the removed sequence",
        next.range
    );
    Ok(())
}

/// Number of clients, and of reserves by each client.
const PROCESSES: u64 = 3;
const RESERVES: u64 = 15;

pub(super) async fn guards_another(context: Arc<Context>) -> Outcome {
    let (store, name) = (MemoryStore::new(), context.name("guards"));
    store.create(&name, Bounds::of::<u64>()).await?;
    let (drawn, mut running) = (Arc::new(Drawn::default()), JoinSet::new());
    for (process, client) in (1..=PROCESSES).zip(context.connect_many(3).await?) {
        let (store, name, drawn) = (store.clone(), name.clone(), drawn.clone());
        running.spawn(async move {
            let witness = StoreWitness::new(client.store().clone())?;
            let guarded = client.of(Guarded::new(store.clone(), witness));
            let request = Reserve::new(name, process);
            for reserve in 0..RESERVES {
                let backup = store.snapshot();
                claim(&guarded, &request, &drawn).await?;
                if (reserve + process).is_multiple_of(4) {
                    store.restore(&backup);
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(outcome) = running.join_next().await {
        outcome??;
    }
    check!(drawn.ids() > 0, "nothing was granted");
    drawn.unique()
}

/// Records the range, if one is granted. After an unknown outcome there is no range to use.
async fn claim(guarded: &Client, request: &Reserve, drawn: &Drawn) -> Outcome {
    match guarded.reserve(request).await? {
        Ok(grant) => drawn.add(grant.range),
        Err(error) if error.kind() == ErrorKind::UnknownOutcome => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
