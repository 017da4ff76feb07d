//! Native sequences that are changed while several processes draw: each grant has the identity of the state
//! that its ids were drawn from.

use std::collections::HashMap;

use idmill::ErrorKind;
use idmill::store::{Bounds, Change, Grant, Identity, Store};
use idmill_guard::{Guarded, MemoryWitness};
use idmill_postgres::NativeSequences;
use idmill_testing::engines::Engine;
use tokio::task::{AbortHandle, JoinHandle};

use crate::{client, inspect, name, request, reserve, server, until_waiting, url};

/// The number of changes in a loop. Without the check, a grant had an invented epoch after at most nine.
const CHANGES: u64 = 150;
/// The number of ids that each state may use.
const ROOM: u64 = 1_000_000;
/// The first id of a sequence. Changes only go back to lower ids.
const FIRST: u64 = ROOM * 1_000;

async fn open(engine: &Engine) -> NativeSequences {
    NativeSequences::open(&url(engine, "&sequences=native")).await.unwrap()
}

/// Creates the sequence `s`, with its next id far above its first.
async fn created(engine: &Engine) -> NativeSequences {
    let store = open(engine).await;
    store.create(&name("s"), Bounds::new(1, 1 << 40).unwrap()).await.unwrap();
    store.set(&name("s"), Change::new().next(FIRST)).await.unwrap();
    store
}

/// The ids of each identity: from the first one up to the last possible next id.
type States = HashMap<Identity, (u64, u64)>;

/// Revokes the sequence and sets it back, in turn, and returns all its states.
async fn change(store: NativeSequences) -> States {
    let (mut before, mut states) = (inspect(&store, "s").await.identity, States::new());
    states.insert(before, (FIRST, FIRST + ROOM));
    for number in 1..=CHANGES {
        let back = FIRST - number * ROOM;
        let change = match number % 2 {
            0 => Change::new().next(back).backwards(true),
            _ => Change::new().revoke(true),
        };
        let now = store.set(&name("s"), change).await.unwrap();
        assert_eq!(now.identity, Identity { epoch: before.epoch + 1, ..before });
        let (next, mut end) = (now.next.unwrap(), back + ROOM);
        if number % 2 == 1 {
            // The ids before the revocation end where those after it begin.
            let revoked = states.get_mut(&before).unwrap();
            end = std::mem::replace(&mut revoked.1, next);
        }
        assert_eq!(states.insert(now.identity, (next, end)), None);
        before = now.identity;
    }
    states
}

/// Grants, and the identities and next ids of reads and of lists.
#[derive(Default)]
struct Seen {
    grants: Vec<Grant>,
    read: Vec<(Identity, u64)>,
}

/// Draws, reads and lists until the other task ends.
async fn draw(store: NativeSequences, until: AbortHandle) -> Seen {
    let mut seen = Seen::default();
    while !until.is_finished() {
        seen.grants.push(reserve(&store, "s", 3).await.unwrap());
        let listed = store.list_all().await.unwrap();
        assert_eq!(listed.len(), 1, "a sequence is missing while it is changed");
        let read = [inspect(&store, "s").await, listed[0].clone()];
        seen.read.extend(read.map(|info| (info.identity, info.next.unwrap())));
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_and_reads_belong_to_one_state() {
    let Some(engine) = server().await else { return };
    let changing = tokio::spawn(change(created(&engine).await));
    let mut drawing: Vec<JoinHandle<Seen>> = Vec::new();
    for _ in 0..4 {
        drawing.push(tokio::spawn(draw(open(&engine).await, changing.abort_handle())));
    }
    let states = changing.await.unwrap();
    let state =
        |identity: Identity| *states.get(&identity).unwrap_or_else(|| panic!("{identity:?} never existed"));
    for drawn in drawing {
        let Seen { grants, read } = drawn.await.unwrap();
        for Grant { range, identity, .. } in grants {
            let (first, end) = state(identity);
            assert!(first <= range.start() && range.end() <= end.into(), "{range:?} with {identity:?}");
        }
        for (identity, next) in read {
            let (first, end) = state(identity);
            assert!(first <= next && next <= end, "{next} with {identity:?}");
        }
    }
}

/// The guard rejects a grant of an earlier epoch than a claim, and heals a store that went back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_accepts_grants_while_others_revoke() {
    let Some(engine) = server().await else { return };
    created(&engine).await;
    let witness = MemoryWitness::new();
    let guarded = async || Guarded::new(open(&engine).await, witness.clone());
    let changing = guarded().await;
    let changing = tokio::spawn(async move {
        for number in 1..=CHANGES {
            let next = Change::new().next(FIRST + number * ROOM);
            let change = if number % 2 == 0 { next } else { Change::new().revoke(true) };
            changing.set(&name("s"), change).await.unwrap();
        }
        changing.healed()
    });
    let mut drawing = Vec::new();
    for _ in 0..4 {
        let (store, until) = (guarded().await, changing.abort_handle());
        drawing.push(tokio::spawn(async move {
            while !until.is_finished() {
                match store.reserve(&request("s", 3)).await {
                    Ok(_) => {}
                    // The sequence was revoked between a grant and its claim, in each of eight attempts.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            }
            store.healed()
        }));
    }
    assert_eq!(changing.await.unwrap(), 0);
    for drawn in drawing {
        assert_eq!(drawn.await.unwrap(), 0);
    }
}

/// A statement of PostgreSQL takes its snapshot before it waits for the lock of a change.
#[tokio::test]
async fn draw_that_waited_for_a_change_has_its_identity() {
    let Some(engine) = server().await else { return };
    let (setter, store) = (created(&engine).await, open(&engine).await);
    let (mut holder, watcher) = (client(&engine).await, client(&engine).await);
    for _ in 0..5 {
        reserve(&store, "s", 1).await.unwrap();
        // The change waits for this transaction, and the draw for the change.
        let holding = holder.transaction().await.unwrap();
        holding.execute("SELECT nextval('s')", &[]).await.unwrap();
        let setter = setter.clone();
        let changing =
            tokio::spawn(async move { setter.set(&name("s"), Change::new().revoke(true)).await.unwrap() });
        until_waiting(&watcher, 1).await;
        let store = store.clone();
        let drawing = tokio::spawn(async move { reserve(&store, "s", 1).await.unwrap() });
        until_waiting(&watcher, 2).await;
        holding.commit().await.unwrap();
        let (changed, grant) = (changing.await.unwrap(), drawing.await.unwrap());
        assert_eq!(grant.identity, changed.identity);
        assert_eq!(Some(grant.range.start()), changed.next, "a draw that repeats took an id");
    }
}

/// A statement that waited for a change does not see it under a stricter isolation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_concurrent_revocations_raises_the_epoch() {
    let Some(engine) = server().await else { return };
    let before = inspect(&created(&engine).await, "s").await.identity;
    let levels = ["read committed", "repeatable read", "serializable"];
    for (level, round) in levels.into_iter().zip(1..) {
        let set = format!("ALTER ROLE postgres SET default_transaction_isolation = '{level}'");
        client(&engine).await.batch_execute(&set).await.unwrap();
        let mut revoking = Vec::new();
        for _ in 0..3 {
            let store = open(&engine).await;
            revoking.push(tokio::spawn(async move {
                for _ in 0..20 {
                    store.set(&name("s"), Change::new().revoke(true)).await.unwrap();
                }
            }));
        }
        for revoked in revoking {
            revoked.await.unwrap();
        }
        let now = inspect(&open(&engine).await, "s").await.identity;
        assert_eq!(now, Identity { epoch: before.epoch + 60 * round, ..before }, "{level}");
    }
}

#[tokio::test]
async fn change_that_waited_for_another_keeps_its_properties() {
    let Some(engine) = server().await else { return };
    let (store, mut holder) = (created(&engine).await, client(&engine).await);
    let before = inspect(&store, "s").await;
    let holding = holder.transaction().await.unwrap();
    holding.batch_execute("ALTER SEQUENCE s MAXVALUE 2000000000").await.unwrap();
    let changing =
        tokio::spawn(async move { store.set(&name("s"), Change::new().revoke(true)).await.unwrap() });
    until_waiting(&client(&engine).await, 1).await;
    holding.commit().await.unwrap();
    let after = changing.await.unwrap();
    assert_eq!(after.bounds.max(), 2_000_000_000);
    // The file that the other change made is part of its epoch, which someone may have read.
    assert!(after.identity.epoch > before.identity.epoch + (1 << 32), "{after:?}");
}
