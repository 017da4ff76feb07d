//! A published table `(name, next_value)`, with rows of other programs.

use idmill::ErrorKind;
use idmill::store::{Bounds, Change, Store};
use idmill_spanner::gcloud_spanner::client::{Client, Error};
use idmill_spanner::gcloud_spanner::key::Key;
use idmill_spanner::gcloud_spanner::mutation::{insert, update};
use idmill_spanner::{InTransaction, SequenceTransaction, SpannerStore, next_in};

use crate::setup::{Emulator, name, request};

const PUBLISHED: &str =
    "CREATE TABLE sequences (name STRING(64) NOT NULL, next_value INT64 NOT NULL) PRIMARY KEY (name)";

async fn published() -> Option<(Emulator, SpannerStore)> {
    let emulator = Emulator::start().await?;
    emulator.ddl(&[PUBLISHED]).await;
    let row = |name: &str, next: i64| insert("sequences", &["name", "next_value"], &[&name, &next]);
    emulator
        .write(vec![row("orders", 1000), row("zero", 0), row("last", i64::MAX - 2), row("broken", -1)])
        .await;
    let store = SpannerStore::open_with(emulator.options().table("sequences")).await.unwrap();
    Some((emulator, store))
}

/// Runs the published algorithm: reads the next value, writes it plus one, and returns the value that was
/// read.
async fn their_next(client: &Client, sequence: &'static str) -> i64 {
    let next = client.read_write_transaction(|tx| {
        Box::pin(async move {
            let row = tx.read_row("sequences", &["next_value"], Key::new(&sequence)).await?.unwrap();
            let value: i64 = row.column(0)?;
            tx.buffer_write(vec![update("sequences", &["name", "next_value"], &[&sequence, &(value + 1)])]);
            Ok::<_, Error>(value)
        })
    });
    next.await.unwrap().1
}

#[tokio::test]
async fn published_table_is_shared_with_other_programs() {
    let Some((emulator, store)) = published().await else { return };
    let client = emulator.client().await;
    assert_eq!(store.reserve(&request("orders", 10)).await.unwrap().range.start(), 1000);
    assert_eq!(their_next(&client, "orders").await, 1010);
    let grant = store.reserve(&request("orders", 10)).await.unwrap();
    assert_eq!((grant.range.start(), grant.bounds), (1011, Bounds::new(1, i64::MAX as u64 - 1).unwrap()));
    let orders = InTransaction::<i64>::new("orders").unwrap().table("sequences").unwrap();
    let mut tx = SequenceTransaction::new(client.begin_read_write_transaction().await.unwrap());
    assert_eq!((tx.next(&orders).await.unwrap(), tx.next(&orders).await.unwrap()), (1021, 1022));
    tx.commit().await.unwrap();
    assert_eq!(their_next(&client, "orders").await, 1023);
    assert_eq!(store.reserve(&request("zero", 2)).await.unwrap().range.start(), 0);
    // Rows of the store and of the published algorithm are interchangeable.
    assert_eq!(store.reserve(&request("new", 3)).await.unwrap().range.start(), 1);
    assert_eq!(their_next(&client, "new").await, 4);
    let ids = idmill_spanner::connect(&emulator.options().table("sequences").to_string()).await.unwrap();
    assert_eq!(ids.sequence::<i64>("new").await.unwrap().next().await.unwrap(), 5);
    assert_eq!(ids.sequence::<i32>("newer").await.unwrap().next().await.unwrap(), 1);
}

#[tokio::test]
async fn published_sequence_is_exhausted_at_its_max() {
    let Some((emulator, store)) = published().await else { return };
    let last = store.reserve(&request("last", 10)).await.unwrap().range;
    assert_eq!((last.start(), last.len()), (i64::MAX as u64 - 2, 2));
    assert_eq!(store.reserve(&request("last", 1)).await.unwrap_err().kind(), ErrorKind::Exhausted);
    let stored = emulator.numbers("SELECT next_value FROM sequences WHERE name = 'last'").await;
    assert_eq!(stored, [i64::MAX], "the stored value does not wrap around");
    let error = store.reserve(&request("broken", 1)).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::StoreViolation, Some("broken")));
    assert!(error.to_string().contains("negative"), "{error}");
}

#[tokio::test]
async fn unsupported_change_to_published_table_names_the_ddl() {
    let Some((emulator, store)) = published().await else { return };
    let orders = name("orders");
    let before = store.inspect(&orders).await.unwrap().unwrap();
    let forward = Change::new().next(2000);
    assert_eq!(store.set(&orders, forward).await.unwrap().next, Some(2000));
    let back = Change::new().next(50).backwards(true);
    let lower = Change::new().max(5000);
    let refusals = [
        store.set(&orders, back).await.unwrap_err(),
        store.set(&orders, lower).await.unwrap_err(),
        store.remove(&orders, None).await.unwrap_err(),
        store.create(&name("new"), Bounds::new(1, 5000).unwrap()).await.unwrap_err(),
        store.create(&name("new"), Bounds::new(1000, u64::MAX).unwrap()).await.unwrap_err(),
    ];
    for error in &refusals {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.sequence().is_some());
    }
    assert_eq!(store.inspect(&orders).await.unwrap().unwrap().next, Some(2000), "nothing was written");
    // Run the exact statements from the error.
    let text = refusals[0].to_string();
    let ddl: Vec<_> = text[text.find("ALTER").unwrap()..].split("; ").collect();
    emulator.ddl(&ddl[..2]).await;
    let error = store.reserve(&request("orders", 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(ddl[2]) && !error.to_string().contains(ddl[0]), "{error}");
    emulator.ddl(&ddl[2..]).await;
    // The same store continues with the same sequence.
    let grant = store.reserve(&request("orders", 1)).await.unwrap();
    assert_eq!((grant.range.start(), grant.identity), (2000, before.identity));
    let set = store.set(&orders, back).await.unwrap();
    assert_eq!((set.next, set.identity.incarnation), (Some(50), before.identity.incarnation));
    assert_eq!(set.identity.epoch, before.identity.epoch + 1);
    assert_eq!(store.set(&orders, lower).await.unwrap().bounds.max(), 5000);
    assert!(store.remove(&orders, None).await.unwrap());
    let again = store.create(&orders, Bounds::new(7, 9).unwrap()).await.unwrap();
    assert_ne!(again.identity.incarnation, before.identity.incarnation);
    assert_eq!(store.reserve(&request("orders", 9)).await.unwrap().range.len(), 3);
}

#[tokio::test]
async fn too_long_name_is_rejected_by_name() {
    let Some((emulator, store)) = published().await else { return };
    let (fits, long) = ("é".repeat(64), "x".repeat(65));
    assert_eq!(store.reserve(&request(&fits, 1)).await.unwrap().range.start(), 1);
    let error = store.reserve(&request(&long, 1)).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::InvalidInput, Some(long.as_str())));
    assert!(error.to_string().contains("STRING(200)"), "{error}");
    assert_eq!(store.inspect(&name(&long)).await.unwrap(), None);
    let client = emulator.client().await;
    let mut tx = client.begin_read_write_transaction().await.unwrap();
    let error = InTransaction::<i64>::new(&long).unwrap().table("sequences").unwrap().next(&mut tx).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut tx = client.begin_read_write_transaction().await.unwrap();
    assert_eq!(next_in::<i64>(&mut tx, "s").await.unwrap_err().kind(), ErrorKind::NotFound, "another table");
}
