//! The modes that reserve in a separate transaction.

use std::time::Duration;

use idmill::store::{Bounds, Change, Store};
use idmill::{ErrorKind, Order};
use idmill_spanner::{SpannerOptions, SpannerStore};
use idmill_url::Schemes;

use crate::setup::{Emulator, assert_tile, client, name, request};

#[tokio::test]
async fn sequence_is_created_drawn_changed_and_removed() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.store().await;
    assert_eq!(store.inspect(&name("s")).await.unwrap(), None);
    let first = store.reserve(&request("s", 10)).await.unwrap();
    assert_eq!((first.range.start(), first.range.len(), first.bounds), (1, 10, Bounds::of::<u64>()));
    let other = emulator.store().await;
    assert_eq!(other.reserve(&request("s", 5)).await.unwrap().range.start(), 11);
    let error = store.create(&name("s"), Bounds::of::<u64>()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let created = store.create(&name("a"), Bounds::new(5, 9).unwrap()).await.unwrap();
    assert_eq!(store.inspect(&name("a")).await.unwrap().unwrap(), created);
    let names: Vec<_> = other.list_all().await.unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, [name("a"), name("s")]);
    let back = Change::new().next(3).backwards(true);
    let set = store.set(&name("s"), back).await.unwrap();
    assert_eq!((set.next, set.identity.epoch), (Some(3), 1));
    assert_eq!(set.identity.incarnation, first.identity.incarnation);
    assert!(store.remove(&name("s"), None).await.unwrap());
    assert!(!store.remove(&name("s"), None).await.unwrap());
    let again = store.reserve(&request("s", 1)).await.unwrap();
    assert_ne!(again.identity.incarnation, first.identity.incarnation);
    assert_eq!(store.set(&name("x"), back).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn every_id_of_64_bits_can_be_stored() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.store().await;
    for (sequence, start, max) in [
        ("signed", i64::MAX as u64 - 2, i64::MAX as u64),
        ("beyond", i64::MAX as u64 - 2, i64::MAX as u64 + 2),
        ("all", u64::MAX - 2, u64::MAX),
        ("zero", 0, 2),
    ] {
        let created = store.create(&name(sequence), Bounds::new(start, max).unwrap()).await.unwrap();
        assert_eq!(store.inspect(&name(sequence)).await.unwrap().unwrap(), created);
        let ids = store.reserve(&request(sequence, 1000)).await.unwrap().range;
        assert_eq!((ids.start(), ids.last()), (start, Some(max)), "{sequence}");
        let error = store.reserve(&request(sequence, 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{sequence}");
        assert_eq!(store.inspect(&name(sequence)).await.unwrap().unwrap().next, None, "{sequence}");
    }
    let long = "é".repeat(100);
    assert_eq!(store.reserve(&request(&long, 1)).await.unwrap().range.start(), 1);
    assert_eq!(store.inspect(&name(&long)).await.unwrap().unwrap().next, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_clients_reserve_without_gap_or_overlap() {
    let Some(emulator) = Emulator::start().await else { return };
    let mut tasks = tokio::task::JoinSet::new();
    for store in [emulator.store().await, emulator.store().await] {
        for task in 0..8 {
            let store = store.clone();
            tasks.spawn(async move {
                let mut ranges = Vec::new();
                for round in 0..20 {
                    ranges.push(store.reserve(&request("s", 1 + (task + round) % 7)).await.unwrap().range);
                }
                ranges
            });
        }
    }
    let ranges = tasks.join_all().await.concat();
    assert_eq!(ranges.len(), 2 * 8 * 20);
    assert_tile(ranges, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sequences_reserve_independently() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.store().await;
    let mut tasks = tokio::task::JoinSet::new();
    for sequence in ["a", "b", "c", "d"] {
        let store = store.clone();
        tasks.spawn(async move {
            for round in 0..10 {
                let range = store.reserve(&request(sequence, 2)).await.unwrap().range;
                assert_eq!(range.start(), 1 + 2 * round);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocator_modes_draw_from_the_store() {
    let Some(emulator) = Emulator::start().await else { return };
    let ids = idmill_spanner::connect(&emulator.options().to_string()).await.unwrap();
    let asynchronous = ids.sequence::<i64>("asynchronous").order(Order::Global).await.unwrap();
    let single = ids.sequence::<i64>("single").step(1).watermark(0).await.unwrap();
    let batch = ids.sequence::<i64>("batch").step(20).watermark(0).await.unwrap();
    let ahead = ids.sequence::<i64>("ahead").step(20).watermark(10).await.unwrap();
    for expected in 1..=45 {
        for sequence in [&asynchronous, &single, &batch, &ahead] {
            assert_eq!(sequence.next().await.unwrap(), expected);
        }
    }
    let reserved = "SELECT next_value - 1 FROM idmill_sequences WHERE name = ";
    for (sequence, expected) in [("asynchronous", 45), ("single", 45), ("batch", 60)] {
        assert_eq!(emulator.numbers(&format!("{reserved}'{sequence}'")).await, [expected], "{sequence}");
    }
}

/// A refill has its own session and transaction, so an id can be drawn inside an open transaction. But the
/// emulator runs one transaction at a time, and aborts the outer transaction in favor of the refill. So the
/// retried outer transaction keeps the id; otherwise it would be aborted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_drawn_during_an_open_caller_transaction() {
    let Some(emulator) = Emulator::start().await else { return };
    emulator.ddl(&["CREATE TABLE orders (id INT64 NOT NULL) PRIMARY KEY (id)"]).await;
    let ids = idmill_spanner::connect(&emulator.options().to_string()).await.unwrap();
    let orders = ids.sequence::<i64>("orders").order(Order::Global).await.unwrap();
    let client = emulator.client().await;
    let mut written = Vec::new();
    for _ in 0..10 {
        written.push(write_an_order(&client, &orders).await);
    }
    assert!(written.is_sorted_by(|a, b| a < b), "{written:?}");
    assert_eq!(emulator.numbers("SELECT id FROM orders ORDER BY id").await, written);
}

/// Runs a transaction that reads, which takes a lock, then draws an id outside the transaction, and writes.
async fn write_an_order(
    client: &idmill_spanner::gcloud_spanner::client::Client,
    orders: &idmill::Allocator<i64>,
) -> i64 {
    use idmill_spanner::gcloud_spanner::statement::Statement;
    use idmill_spanner::{SequenceTransaction, TransactionError, until_committed};

    let drawn = std::cell::Cell::new(None);
    until_committed(|| async {
        let mut tx = SequenceTransaction::begun(client.begin_read_write_transaction().await)?;
        {
            let mut rows = tx.query(Statement::new("SELECT COUNT(*) FROM orders")).await?;
            rows.next().await?;
        }
        let id = match drawn.get() {
            Some(id) => id,
            None => orders.next().await?,
        };
        drawn.set(Some(id));
        let mut insert = Statement::new("INSERT INTO orders (id) VALUES (@id)");
        insert.add_param("id", &id);
        tx.update(insert).await?;
        tx.commit().await?;
        Ok::<_, TransactionError>(id)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn caller_client_works_and_the_url_round_trips() {
    let Some(emulator) = Emulator::start().await else { return };
    emulator.ddl(&[&SpannerStore::ddl("mine").unwrap()]).await;
    let own = client(&emulator.address(), |_| ()).await;
    let store = SpannerStore::from_client(own, SpannerOptions::default().table("mine")).await.unwrap();
    assert_eq!(store.reserve(&request("s", 3)).await.unwrap().range.start(), 1);
    let url = format!(
        "{}?table=mine&emulator={}",
        "spanner://projects/test/instances/test/databases/test",
        emulator.address()
    );
    let parsed = Schemes::default().with(idmill_spanner::SCHEMES).unwrap().parse(&url).unwrap();
    assert_eq!((parsed.to_string(), parsed.scheme(), parsed.file()), (url, "spanner", None));
    let found = parsed.existing().connect().await.unwrap().list_all().await.unwrap();
    assert_eq!((found.len(), found[0].next), (1, Some(4)));
}

#[tokio::test]
async fn access_modes_are_enforced() {
    use idmill_spanner::Mode;

    let Some(emulator) = Emulator::start().await else { return };
    let open = |options: SpannerOptions| async { SpannerStore::open_with(options).await };
    let error = open(emulator.options().mode(Mode::ReadWrite)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("restore it"), "{error}");
    emulator.store().await.reserve(&request("s", 3)).await.unwrap();
    let reader = open(emulator.options().mode(Mode::ReadOnly)).await.unwrap();
    assert_eq!(reader.list_all().await.unwrap().len(), 1);
    let error = reader.reserve(&request("s", 1)).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Denied, Some("s")));
    let elsewhere =
        SpannerOptions::new("projects/test/instances/none/databases/none").emulator(emulator.address());
    assert_eq!(open(elsewhere.clone().mode(Mode::ReadWrite)).await.unwrap_err().kind(), ErrorKind::NotFound);
    let made = tokio::join!(open(elsewhere.clone()), open(elsewhere.clone()), open(elsewhere.clone()));
    assert!(made.0.is_ok() && made.1.is_ok() && made.2.is_ok(), "{made:?}");
    // The emulator rejects concurrent schema changes, so opening must retry.
    for round in 0..5 {
        let many = (0..8).map(|n| open(elsewhere.clone().table(format!("t{round}_{}", n % 4))));
        for made in futures_util::future::join_all(many).await {
            made.unwrap();
        }
    }
}

#[tokio::test]
async fn unreachable_address_is_unavailable() {
    let address = format!("127.0.0.1:{}", idmill_conformance::free_port());
    let options = SpannerOptions::new(crate::setup::DATABASE).emulator(address);
    let opening = tokio::time::timeout(Duration::from_secs(30), SpannerStore::open_with(options));
    assert_eq!(opening.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}
