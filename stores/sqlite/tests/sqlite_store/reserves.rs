//! Single and concurrent reserves, and the other calls of the contract.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use idmill::store::{Bounds, Change, GiveBack, Grant, Identity, Store};
use idmill::{Error, ErrorKind, IdRange, Operation};
use idmill_sqlite::{SqliteOptions, SqliteStore};
use idmill_testing::grants::disjoint;
use idmill_testing::grants::reserving::reserved_at_once;

use crate::{Place, inspect, name, request, reserve};

/// SQLite's connections wait in no order, so one of many can wait for a long time.
fn patient(file: PathBuf) -> SqliteOptions {
    SqliteOptions::new(file).busy_timeout(Duration::from_secs(60))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ranges_are_disjoint_among_tasks_and_connections() {
    let place = Place::new();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(SqliteStore::open_with(patient(place.file())).await.unwrap());
    }
    let grants = reserved_at_once(stores, 4, 15, |count| request("s", count)).await;
    let reserved = disjoint(&grants);
    assert_eq!(inspect(&place.open().await, "s").await.next, Some(reserved + 1), "and there are no gaps");
    assert_eq!(grants.iter().map(|grant| grant.identity.incarnation).collect::<BTreeSet<_>>().len(), 1);
}

#[test]
fn many_that_create_one_file_at_once_all_succeed() {
    for _ in 0..10 {
        let place = Place::new();
        let barrier = Arc::new(Barrier::new(12));
        let threads: Vec<_> = (0..12)
            .map(|_| {
                let (file, barrier) = (place.file(), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    barrier.wait();
                    runtime.block_on(async {
                        let store = SqliteStore::open_with(patient(file)).await?;
                        store.reserve(&request("s", 10)).await
                    })
                })
            })
            .collect();
        let grants: Vec<Grant> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
        assert_eq!(disjoint(&grants), 120);
        let mode: String = place.raw().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}

#[tokio::test]
async fn the_last_id_of_u64_is_granted_and_kept() {
    let place = Place::new();
    let store = place.open().await;
    store.create(&name("s"), Bounds::new(u64::MAX - 4, u64::MAX).unwrap()).await.unwrap();
    assert_eq!(reserve(&store, "s", 3).await.unwrap(), (u64::MAX - 4, 3));
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (u64::MAX - 1, 2));
    let again = place.open().await;
    for _ in 0..2 {
        assert_eq!(reserve(&again, "s", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
    }
    assert_eq!((inspect(&again, "s").await.next, inspect(&again, "s").await.remaining()), (None, 0));
}

/// Counts the transactions in the write-ahead log: a frame whose header has a database size ends
/// one.
fn commits(place: &Place) -> usize {
    let wal = std::fs::read(place.dir.path().join("ids.db-wal")).unwrap();
    let page = u32::from_be_bytes(wal[8..12].try_into().unwrap()) as usize;
    wal[32..].chunks_exact(24 + page).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn batch_is_one_transaction_with_separate_failures() {
    let place = Place::new();
    let store = place.open().await;
    store.create(&name("small"), Bounds::new(1, 1).unwrap()).await.unwrap();
    reserve(&store, "small", 1).await.unwrap();
    reserve(&store, "bad", 1).await.unwrap();
    place.raw().execute("UPDATE idmill_sequences SET next = 0 WHERE name = 'bad'", []).unwrap();
    let batch = ["a", "small", "b", "bad", "a"].map(|name| request(name, 5));
    let before = commits(&place);
    let outcomes = store.reserve_many(&batch).await;
    let shown: Vec<_> =
        outcomes.iter().map(|o| o.as_ref().map(|g| g.range.start()).map_err(Error::kind)).collect();
    let (exhausted, violation) = (Err(ErrorKind::Exhausted), Err(ErrorKind::StoreViolation));
    assert_eq!(shown, [Ok(1), exhausted, Ok(1), violation, Ok(6)]);
    assert_eq!(outcomes[1].as_ref().unwrap_err().sequence(), Some("small"));
    assert_eq!(commits(&place), before + 1);
    assert!(store.reserve_many(&[]).await.is_empty());
}

#[tokio::test]
async fn a_reserve_that_grants_nothing_creates_nothing() {
    let place = Place::new();
    let store = place.open().await;
    let request = request("s", 1).ceiling(9).create(Bounds::new(10, 20).unwrap());
    assert_eq!(store.reserve(&request).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(store.list_all().await.unwrap(), []);
}

#[tokio::test]
async fn a_dropped_reserve_leaves_a_gap_at_most() {
    let place = Place::new();
    let store = place.open().await;
    let mut last = 0;
    for timeout in 0..30 {
        let request = request("s", 10);
        let _ = tokio::time::timeout(Duration::from_micros(timeout * 40), store.reserve(&request)).await;
        let (start, len) = reserve(&store, "s", 10).await.unwrap();
        assert!(start > last && (start - 1) % 10 == 0);
        last = start + len - 1;
    }
}

#[tokio::test]
async fn rest_is_given_back_once_and_to_its_own_sequence_only() {
    let place = Place::new();
    let store = place.open().await;
    let Grant { range, identity, .. } = store.reserve(&request("orders", 10)).await.unwrap();
    let back = GiveBack::new(name("orders"), identity, IdRange::new(range.start() + 3, 7).unwrap());
    let later = Identity { epoch: 1, ..identity };
    assert!(!store.give_back(&GiveBack::new(name("orders"), later, back.rest)).await.unwrap());
    assert!(!store.give_back(&GiveBack::new(name("users"), identity, back.rest)).await.unwrap());
    assert!(store.give_back(&back).await.unwrap());
    assert_eq!(place.open().await.inspect(&name("orders")).await.unwrap().unwrap().next, Some(4));
    assert!(!store.give_back(&back).await.unwrap());
    assert_eq!(reserve(&store, "orders", 5).await.unwrap(), (4, 5));
    assert!(!store.give_back(&back).await.unwrap(), "later ids were reserved");
}

#[tokio::test]
async fn administration_follows_the_contract() {
    let place = Place::new();
    let store = place.open().await;
    let s = name("s");
    assert_eq!(store.inspect(&s).await.unwrap(), None);
    assert_eq!(store.set(&s, Change::default()).await.unwrap_err().kind(), ErrorKind::NotFound);
    let created = store.create(&s, Bounds::new(10, 100).unwrap()).await.unwrap();
    assert_eq!(store.create(&s, Bounds::of::<u64>()).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(inspect(&store, "s").await, created);
    let forward = Change::new().next(50).max(200);
    let set = store.set(&s, forward).await.unwrap();
    assert_eq!((set.next, set.bounds.max(), set.identity), (Some(50), 200, created.identity));
    let back = Change::new().next(20);
    let error = store.set(&s, back).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Conflict, Some(Operation::Set)));
    assert_eq!(inspect(&store, "s").await, set, "a refused change changes nothing");
    let back = store.set(&s, back.backwards(true)).await.unwrap();
    assert_eq!((back.next, back.identity.epoch), (Some(20), created.identity.epoch + 1));
    assert_eq!(inspect(&place.open().await, "s").await, back);
    assert!(store.remove(&s, None).await.unwrap());
    assert!(!store.remove(&s, None).await.unwrap());
    let again = store.reserve(&request("s", 1)).await.unwrap();
    assert_ne!(again.identity.incarnation, created.identity.incarnation);
}
