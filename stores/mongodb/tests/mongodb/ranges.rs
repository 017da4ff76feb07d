//! Tests that ranges are disjoint, exact at the bounds, and reserved in one round trip.

use std::sync::Arc;

use idmill::store::{Bounds, Change, Grant, Page, Store};
use idmill::{Error, ErrorKind};
use idmill_mongodb::MongoStore;
use idmill_mongodb::driver::bson::{Bson, doc};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::commands::Between;
use crate::{bounds, disjoint, documents, inspect, name, open, request, reserve, schemes, server, url};

const LARGEST: u64 = i64::MAX as u64;

#[tokio::test]
async fn reserve_needs_one_round_trip_and_the_first_three() {
    let Some(server) = server().await else { return };
    let proxy = Between::to(server.address()).await;
    let store = open(proxy.address()).await;
    let writes_and_reads = ["findAndModify", "insert", "delete", "find"];
    proxy.counts(writes_and_reads);
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    assert_eq!(proxy.counts(writes_and_reads), [1, 1, 0, 1]);
    for start in [11, 21, 31] {
        assert_eq!(reserve(&store, "s", 10).await.unwrap(), (start, 10));
        assert_eq!(proxy.counts(writes_and_reads), [1, 0, 0, 0]);
    }
    // If the stored max differs from the expected max, the store reads it once.
    store.create(&name("other"), bounds(1, 1_000)).await.unwrap();
    proxy.counts(writes_and_reads);
    assert_eq!(reserve(&store, "other", 10).await.unwrap(), (1, 10));
    assert_eq!(proxy.counts(writes_and_reads), [2, 0, 0, 1]);
    assert_eq!(reserve(&store, "other", 10).await.unwrap(), (11, 10));
    assert_eq!(proxy.counts(writes_and_reads), [1, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_tasks_reserve_without_overlap_or_gap() {
    let Some(server) = server().await else { return };
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let store = open(server.address()).await;
        for task in 0..4 {
            let store = store.clone();
            tasks.spawn(async move {
                let mut grants = Vec::new();
                for turn in 0..200 {
                    let count = (turn + task) % 7 + 1;
                    let grant = store.reserve(&request("s", count)).await.unwrap();
                    assert_eq!(grant.range.len(), count);
                    grants.push(grant);
                }
                grants
            });
        }
    }
    let grants: Vec<Grant> = tasks.join_all().await.into_iter().flatten().collect();
    let (ids, first, last) = disjoint(&grants);
    assert_eq!((grants.len(), first, last), (3_200, 1, ids), "contiguous");
    assert_eq!(inspect(&open(server.address()).await, "s").await.next, Some(ids + 1));
    assert!(grants.iter().all(|grant| grant.identity == grants[0].identity));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_first_reserves_all_succeed() {
    let Some(server) = server().await else { return };
    let mut stores = Vec::new();
    for _ in 0..12 {
        stores.push(open(server.address()).await);
    }
    for round in 0..10 {
        let (barrier, sequence) = (Arc::new(Barrier::new(stores.len())), format!("s{round}"));
        let mut tasks = JoinSet::new();
        for store in stores.clone() {
            let (barrier, request) = (barrier.clone(), request(&sequence, 10));
            tasks.spawn(async move {
                barrier.wait().await;
                store.reserve(&request).await.unwrap()
            });
        }
        let grants = tasks.join_all().await;
        assert_eq!(disjoint(&grants), (120, 1, 120));
        assert!(grants.iter().all(|grant| grant.identity == grants[0].identity), "{grants:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_one_of_concurrent_creates_succeeds() {
    let Some(server) = server().await else { return };
    let barrier = Arc::new(Barrier::new(8));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (store, barrier) = (open(server.address()).await, barrier.clone());
        tasks.spawn(async move {
            barrier.wait().await;
            store.create(&name("s"), bounds(5, 9)).await.map_err(|error| error.kind())
        });
    }
    let outcomes = tasks.join_all().await;
    let created: Vec<_> = outcomes.iter().flatten().collect();
    assert_eq!(created.len(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Err(ErrorKind::AlreadyExists)).count(), 7);
    assert_eq!(&inspect(&open(server.address()).await, "s").await, created[0]);
}

#[tokio::test]
async fn bounds_are_exact() {
    let Some(server) = server().await else { return };
    let store = open(server.address()).await;
    store.create(&name("s"), bounds(10, 20)).await.unwrap();
    assert_eq!(reserve(&store, "s", 4).await.unwrap(), (10, 4));
    let narrow = request("s", 4).ceiling(15);
    let grant = store.reserve(&narrow).await.unwrap();
    assert_eq!(
        (grant.range.start(), grant.range.len(), grant.bounds),
        (14, 2, bounds(10, 20)),
        "the type ends"
    );
    let error = store.reserve(&narrow).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Exhausted, Some("s")));
    assert_eq!(reserve(&store, "s", u64::MAX).await.unwrap(), (16, 5), "the remaining ids");
    for _ in 0..2 {
        assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
    }
    assert_eq!((inspect(&store, "s").await.next, inspect(&store, "s").await.remaining()), (None, 0));
    let raised = Change::new().max(21);
    store.set(&name("s"), raised).await.unwrap();
    assert_eq!(reserve(&store, "s", 9).await.unwrap(), (21, 1));
}

#[tokio::test]
async fn sequence_covers_0_and_the_largest_integer() {
    let Some(server) = server().await else { return };
    let store = open(server.address()).await;
    store.create(&name("all"), bounds(0, LARGEST)).await.unwrap();
    assert_eq!(reserve(&store, "all", 1).await.unwrap(), (0, 1));
    assert_eq!(reserve(&store, "all", u64::MAX).await.unwrap(), (1, LARGEST));
    assert_eq!(reserve(&store, "all", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
    store.create(&name("end"), bounds(LARGEST - 4, LARGEST)).await.unwrap();
    assert_eq!(reserve(&store, "end", 3).await.unwrap(), (LARGEST - 4, 3));
    assert_eq!(reserve(&store, "end", 3).await.unwrap(), (LARGEST - 1, 2));
    // Test a `u64` sequence without an explicit max.
    assert_eq!(reserve(&store, "wide", 1).await.unwrap(), (1, 1));
    assert_eq!(inspect(&store, "wide").await.bounds, bounds(1, LARGEST));
    let beyond = store.create(&name("beyond"), bounds(1, LARGEST + 1)).await.unwrap_err();
    let change = Change::new().max(LARGEST + 1);
    for error in [beyond, store.set(&name("wide"), change).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("2^63 - 1"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sequence_is_granted_to_its_last_id() {
    let Some(server) = server().await else { return };
    open(server.address()).await.create(&name("s"), bounds(1, 500)).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = open(server.address()).await;
        tasks.spawn(async move {
            let mut grants = Vec::new();
            loop {
                match store.reserve(&request("s", 7)).await {
                    Ok(grant) => grants.push(grant),
                    Err(error) => break (grants, error),
                }
            }
        });
    }
    let (grants, errors): (Vec<_>, Vec<Error>) = tasks.join_all().await.into_iter().unzip();
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Exhausted), "{errors:?}");
    assert_eq!(disjoint(&grants.concat()), (500, 1, 500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_changes_repeat_no_id() {
    let Some(server) = server().await else { return };
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let store = open(server.address()).await;
        tasks.spawn(async move {
            let mut grants = Vec::new();
            for _ in 0..50 {
                grants.push(store.reserve(&request("s", 3)).await.unwrap());
            }
            grants
        });
    }
    let store = open(server.address()).await;
    let mut changes = 0;
    while changes < 20 {
        let Some(info) = store.inspect(&name("s")).await.unwrap() else { continue };
        // The step is larger than all concurrent reserves together.
        let forward = Change::new().next(info.next.unwrap() + 10_000);
        let set = store.set(&name("s"), forward).await.unwrap();
        assert_eq!((set.next, set.identity), (forward.next, info.identity));
        // Lowering the max must keep the current `next`, which other tasks may have moved since the `set`
        // above.
        let narrower = Change::new().max(info.bounds.max() - 1);
        let set = store.set(&name("s"), narrower).await.unwrap();
        assert_eq!((Some(set.bounds.max()), set.identity), (narrower.max, info.identity));
        changes += 1;
    }
    let grants = tasks.join_all().await.concat();
    disjoint(&grants);
}

#[tokio::test]
async fn moving_backwards_begins_a_new_epoch() {
    let Some(server) = server().await else { return };
    let store = open(server.address()).await;
    let s = name("s");
    let created = store.create(&s, bounds(1, 100)).await.unwrap();
    reserve(&store, "s", 50).await.unwrap();
    let back = Change::new().next(10).expect(created.identity);
    assert_eq!(store.set(&s, back).await.unwrap_err().kind(), ErrorKind::Conflict);
    let back = back.backwards(true);
    let set = store.set(&s, back).await.unwrap();
    assert_eq!((set.next, set.identity.epoch), (Some(10), 1));
    assert_eq!(inspect(&store, "s").await, set);
    assert_eq!(
        store.set(&s, back).await.unwrap_err().kind(),
        ErrorKind::Conflict,
        "the identity has changed"
    );
    let grant = store.reserve(&request("s", 5)).await.unwrap();
    assert_eq!((grant.range.start(), grant.identity), (10, set.identity));
    assert!(store.remove(&s, None).await.unwrap() && !store.remove(&s, None).await.unwrap());
    assert_eq!(store.inspect(&s).await.unwrap(), None);
    let grant = store.reserve(&request("s", 5)).await.unwrap();
    assert_ne!(grant.identity.incarnation, created.identity.incarnation);
    assert_eq!((grant.range.start(), grant.identity.epoch), (1, 0));
    let missing = store.set(&name("none"), Change::default()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn the_document_is_as_documented() {
    let Some(server) = server().await else { return };
    let store = open(server.address()).await;
    let names = ["orders", "ünï/cödé", "$dollar.dot", &"x".repeat(200)];
    for text in names {
        reserve(&store, text, 5).await.unwrap();
    }
    let document =
        documents(server.address()).await.find_one(doc! { "_id": "orders" }).await.unwrap().unwrap();
    let identity = inspect(&store, "orders").await.identity;
    let expected = doc! {
        "_id": "orders", "last": 5_i64, "start": 1_i64, "max": i64::MAX,
        "incarnation": identity.incarnation.cast_signed(), "epoch": 0_i64, "format": 1_i64,
    };
    assert_eq!(document, expected);
    let mut sorted = names.map(name);
    sorted.sort();
    let listed = open(server.address()).await.list_all().await.unwrap();
    assert_eq!(listed.iter().map(|info| info.name.clone()).collect::<Vec<_>>(), sorted);
    assert!(listed.iter().all(|info| info.next == Some(6)));
}

#[tokio::test]
async fn invalid_document_is_rejected_and_unchanged() {
    let Some(server) = server().await else { return };
    let (store, documents) = (open(server.address()).await, documents(server.address()).await);
    for (field, value, kind) in [
        ("format", Bson::Int64(2), ErrorKind::Unsupported),
        ("max", Bson::Int64(0), ErrorKind::StoreViolation),
        ("last", Bson::String("x".into()), ErrorKind::StoreViolation),
        ("last", Bson::Int64(-7), ErrorKind::StoreViolation),
    ] {
        documents.delete_many(doc! {}).await.unwrap();
        reserve(&store, "s", 5).await.unwrap();
        documents.update_one(doc! { "_id": "s" }, doc! { "$set": { field: value.clone() } }).await.unwrap();
        let before = documents.find_one(doc! {}).await.unwrap();
        let outcomes = [
            reserve(&store, "s", 5).await.map(drop),
            store.inspect(&name("s")).await.map(drop),
            store.list_all().await.map(drop),
        ];
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), kind, "{field} = {value}: {error}");
            assert!(error.to_string().contains("\"s\""), "{error}");
        }
        documents.insert_one(doc! { "_id": 7 }).await.unwrap();
        reserve(&store, "t", 5).await.unwrap();
        let listing = store.list(&Page::default()).await.unwrap();
        assert_eq!(listing.sequences, [inspect(&store, "t").await], "unreadable documents are listed apart");
        let bad: Vec<_> = listing.unreadable.iter().map(|row| (&*row.name, row.error.kind())).collect();
        assert_eq!(bad, [("7", ErrorKind::StoreViolation), ("s", kind)]);
        documents.delete_many(doc! { "_id": { "$ne": "s" } }).await.unwrap();
        assert_eq!(documents.find_one(doc! {}).await.unwrap(), before, "{field} = {value}");
    }
}

#[tokio::test]
async fn caller_client_works_and_collections_are_namespaces() {
    let Some(server) = server().await else { return };
    let store = MongoStore::new(&documents(server.address()).await);
    assert_eq!(reserve(&store, "s", 5).await.unwrap(), (1, 5));
    assert_eq!(reserve(&open(server.address()).await, "s", 5).await.unwrap(), (6, 5));
    let other = MongoStore::open(&url(server.address(), "&collection=other")).await.unwrap();
    assert_eq!(reserve(&other, "s", 5).await.unwrap(), (1, 5));
    assert_eq!(store.capabilities(), other.capabilities());
    assert!(format!("{other:?}").contains("test.other"));
}

#[tokio::test]
async fn connecting_and_listing_create_nothing() {
    let Some(server) = server().await else { return };
    let target = schemes().parse(&url(server.address(), "&collection=c")).unwrap();
    let error = target.clone().existing().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("test.c"), "{error}");
    let store = target.connect().await.unwrap();
    assert_eq!(store.list_all().await.unwrap(), []);
    assert!(target.clone().existing().connect().await.is_err(), "connecting and listing create nothing");
    store.create(&name("s"), Bounds::of::<u64>()).await.unwrap();
    assert_eq!(target.existing().connect().await.unwrap().list_all().await.unwrap().len(), 1);
}

/// With `must_exist`, a record must not create the records collection.
#[tokio::test]
async fn must_exist_prevents_creating_records_collection() {
    let Some(engine) = server().await else { return };
    let (store, s) = (open(engine.address()).await, name("s"));
    reserve(&store, "s", 1).await.unwrap();
    let target = schemes().parse(&url(engine.address(), "")).unwrap().existing();
    let existing = target.connect().await.unwrap();
    assert_eq!(existing.record(&s).await.unwrap(), None);
    assert!(!existing.swap_record(&s, Some("a"), "b").await.unwrap());
    let error = existing.swap_record(&s, None, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("idmill_witness"), "{error}");
    assert!(store.swap_record(&s, None, "a").await.unwrap());
    assert!(existing.swap_record(&s, Some("a"), "b").await.unwrap());
}
