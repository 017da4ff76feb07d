//! Windows over sequences that are exhausted, are changed directly, or share their key with items of other
//! programs.

use std::collections::BTreeSet;

use idmill::store::{Bounds, Change, MemoryStore, Reserve, Store};
use idmill::{ErrorKind, Operation, SequenceName};
use idmill_testing::engines::Engine;
use idmill_testing::eventually;

use crate::bench::{Issued, Raw, Tier, draw, gated, key, name, options, request, server, tier};
use crate::gate::Gate;

/// Returns a tier that detects changes quickly.
fn curious(server: &Engine, store: &MemoryStore, block: u64) -> Tier {
    tier(store, options(server, block).refresh(std::time::Duration::from_millis(100)))
}

/// Draws until the sequence is exhausted. Returns the ids in the order of the draws.
async fn all(tier: &Tier, mut request: Reserve) -> Vec<u64> {
    let mut ids = Vec::new();
    loop {
        match tier.reserve(&request).await {
            Ok(grant) => ids.extend(grant.range.iter()),
            Err(error) if error.kind() == ErrorKind::Exhausted => return ids,
            Err(error) => panic!("{error}"),
        }
        request.count = request.count % 7 + 1;
    }
}

#[tokio::test]
async fn sequence_is_granted_to_its_last_id() {
    let server = server!();
    for (start, max) in [(1, 1), (5, 12), (1, 30), (1, 34), (u64::MAX - 33, u64::MAX), (u64::MAX, u64::MAX)] {
        let store = MemoryStore::new();
        let create = Bounds::new(start, max).unwrap();
        let ids = all(&tier(&store, options(&server, 10)), request(3).create(create)).await;
        assert_eq!(ids, (start..=max).collect::<Vec<_>>(), "{start}..={max}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_exhaust_a_sequence_without_gaps() {
    let server = server!();
    let store = MemoryStore::new();
    let create = Bounds::new(1, 777).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let tier = tier(&store, options(&server, 50));
        tasks.spawn(async move { all(&tier, request(1).create(create)).await });
    }
    let all: Vec<u64> = tasks.join_all().await.concat();
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct), (777, (1..=777).collect()));
}

#[tokio::test]
async fn ceiling_limits_draws_but_not_the_window() {
    let server = server!();
    let store = MemoryStore::new();
    let tier = tier(&store, options(&server, 10));
    let small = |count| request(count).ceiling(14);
    assert_eq!(draw(&tier, 10).await.len(), 10);
    assert_eq!(tier.reserve(&small(6)).await.unwrap().range.iter().collect::<Vec<_>>(), [11, 12, 13, 14]);
    for _ in 0..3 {
        let error = tier.reserve(&small(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert!(error.to_string().contains("14"), "{error}");
    }
    let rest = draw(&tier, 10).await;
    // Some ids may be abandoned: the window was refilled before the tier knew that the caller's ceiling was
    // near.
    assert_eq!(rest.start(), 15 + tier.abandoned());
    assert!(tier.abandoned() <= 2);
    // The next block is above the caller's ceiling, so no block may be reserved for this caller.
    let reserves = store.reserves();
    draw(&tier, rest.len()).await;
    assert_eq!(tier.reserve(&small(1)).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert!(store.reserves() <= reserves + 1);
}

#[tokio::test]
async fn ids_reserved_by_others_are_never_handed_out() {
    let server = server!();
    let store = MemoryStore::new();
    let tier = tier(&store, options(&server, 100));
    let mut issued = Issued::default();
    issued.add(draw(&tier, 1).await);
    // Another caller reserves the 30 ids after the window. The prepared range then does not follow the
    // window, and must not be joined to it.
    store.reserve(&request(30)).await.unwrap();
    for _ in 0..99 {
        issued.add(draw(&tier, 1).await);
    }
    let first = draw(&tier, 5).await;
    issued.add(first);
    assert_eq!(first.start(), 131 + tier.abandoned());
    store.set(&name(), Change::new().next(12_345)).await.unwrap();
    while !issued.0.contains(&12_345) && issued.len() < 1_000 {
        issued.add(draw(&tier, 5).await);
    }
    let others: Vec<_> = issued.0.range(101..=130).collect();
    assert!(others.is_empty(), "{others:?} belong to another caller");
    assert!(
        issued.0.contains(&12_345) || tier.abandoned() > 0,
        "the prepared range is used or counted as abandoned"
    );
}

#[tokio::test]
async fn set_applies_to_all_clients_and_voids_reserved_blocks() {
    let server = server!();
    let store = MemoryStore::new();
    let (one, other) = (tier(&store, options(&server, 100)), tier(&store, options(&server, 100)));
    assert_eq!((draw(&one, 1).await.start(), draw(&other, 1).await.start()), (1, 2));
    let forward = |next| Change::new().next(next);
    one.set(&name(), forward(5_001)).await.unwrap();
    assert_eq!((draw(&other, 1).await.start(), draw(&one, 1).await.start()), (5_001, 5_002));
    // Reserve a block, and set the sequence before the block is installed. The block must then not be
    // installed.
    let mut gate = Gate::before(server.address()).await;
    let slow = tier(&store, gated(&gate, 100));
    let mut raw = Raw::open(&server).await;
    raw.evict(&key(&store).await).await;
    let drawing = tokio::spawn(async move { (draw(&slow, 1).await.start(), slow.abandoned()) });
    gate.pass("ma").await;
    gate.pass("mg").await;
    let install = gate.expect("ms").await;
    one.set(&name(), forward(9_001)).await.unwrap();
    gate.open();
    install.pass();
    assert_eq!(drawing.await.unwrap(), (9_001, 100));
    // If the item cannot be deleted, the window may continue to hand out ids, so `set` must return an
    // error.
    server.kill();
    let error = one.set(&name(), forward(10_001)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.operation()),
        (ErrorKind::UnknownOutcome, Some(Operation::Set)),
        "{error}"
    );
    assert!(error.to_string().contains("repeat the change"), "{error}");
}

#[tokio::test]
async fn raised_max_is_used_without_a_gap() {
    let server = server!();
    let store = MemoryStore::new();
    let create = Bounds::new(1, 25).unwrap();
    let tier = curious(&server, &store, 10);
    assert_eq!(all(&tier, request(1).create(create)).await.len(), 25);
    store.set(&name(), Change::new().max(47)).await.unwrap();
    let ids = all(&tier, request(1)).await;
    assert_eq!(ids, (26..=47).collect::<Vec<_>>());
}

#[tokio::test]
async fn client_with_a_stale_max_is_served_from_a_raised_window() {
    let server = server!();
    let store = MemoryStore::new();
    let create = Bounds::new(1, 10).unwrap();
    let (slow, other) = (tier(&store, options(&server, 10)), tier(&store, options(&server, 10)));
    slow.reserve(&request(10).create(create)).await.unwrap();
    store.set(&name(), Change::new().max(1_000)).await.unwrap();
    draw(&other, 1).await;
    let grant = slow.reserve(&request(1)).await.unwrap();
    assert_eq!((grant.range.start(), grant.bounds.max() >= 12), (12, true));
}

#[tokio::test]
async fn reset_or_recreated_sequence_gets_another_key() {
    let server = server!();
    let store = MemoryStore::new();
    let tier = curious(&server, &store, 100);
    let first = tier.reserve(&request(1)).await.unwrap();
    let before = key(&store).await;
    let back = Change::new().next(1).backwards(true);
    store.set(&name(), back).await.unwrap();
    let other_than = async |before: idmill::store::Identity| {
        eventually("the identity is another", async || {
            let grant = tier.reserve(&request(1)).await.unwrap();
            if grant.identity == before { Err(grant) } else { Ok(grant) }
        })
        .await
    };
    let after = other_than(first.identity).await;
    assert_eq!((after.range.start(), after.identity.epoch), (1, 1));
    assert_ne!(before, key(&store).await);
    store.remove(&name(), None).await.unwrap();
    let again = other_than(after.identity).await;
    assert_eq!((again.range.start(), again.identity.epoch), (1, 0));
}

#[tokio::test]
async fn range_of_new_identity_is_not_put_under_the_old_key() {
    let server = server!();
    let store = MemoryStore::new();
    let tier = tier(&store, options(&server, 10));
    draw(&tier, 10).await;
    // The window is empty, and the sequence in the store has changed. The next refresh is 5 s away, so only
    // the refill can detect the change.
    store.set(&name(), Change::new().next(1).backwards(true)).await.unwrap();
    let grant = tier.reserve(&request(1)).await.unwrap();
    assert_eq!((grant.identity.epoch, grant.range.start(), tier.abandoned()), (1, 11, 10));
}

#[tokio::test]
async fn foreign_value_under_a_key_is_rejected_by_name() {
    let server = server!();
    let store = MemoryStore::new();
    let tier = tier(&store, options(&server, 100));
    draw(&tier, 1).await;
    let (mut operator, key) = (Raw::open(&server).await, key(&store).await);
    for garbage in ["hello", ""] {
        operator.ask(&format!("ms {key} {}\r\n{garbage}", garbage.len())).await;
        let error = tier.reserve(&request(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{garbage:?}");
        assert!(error.to_string().contains(&key), "{error}");
    }
    operator.evict(&key).await;
    assert_eq!(draw(&tier, 1).await.start(), 101);
}

#[tokio::test]
async fn any_block_length_and_any_name_work() {
    let server = server!();
    for (text, block) in [("a b\u{1F980}%\u{e9}", 1), ("x".repeat(200).as_str(), 1 << 20), ("\"", 7)] {
        let (Ok(name), store) = (SequenceName::new(text), MemoryStore::new()) else { continue };
        let tier = tier(&store, options(&server, block));
        let mut ids = Vec::new();
        for _ in 0..20 {
            let mut request = request(3);
            request.name = name.clone();
            ids.extend(tier.reserve(&request).await.unwrap().range.iter());
        }
        assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    }
}
