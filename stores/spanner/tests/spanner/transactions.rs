//! Gapless ids, which are reserved inside the caller's own transaction.

use std::num::NonZeroI64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idmill::store::{Bounds, Store};
use idmill::{Error, ErrorKind, Operation};
use idmill_spanner::gcloud_spanner::client::Client;
use idmill_spanner::gcloud_spanner::statement::Statement;
use idmill_spanner::gcloud_spanner::transaction_rw::ReadWriteTransaction;
use idmill_spanner::{
    InTransaction, SequenceTransaction, SpannerStore, TransactionError, next_in, reserve_in, until_committed,
};

use crate::setup::{Emulator, request};

const INVOICES: &str = "CREATE TABLE invoices (number INT64 NOT NULL) PRIMARY KEY (number)";

async fn with_tables() -> Option<(Emulator, Client)> {
    let emulator = Emulator::start().await?;
    emulator.ddl(&[INVOICES, &SpannerStore::ddl("idmill_sequences").unwrap()]).await;
    let client = emulator.client().await;
    Some((emulator, client))
}

async fn begin(client: &Client) -> ReadWriteTransaction {
    client.begin_read_write_transaction().await.unwrap()
}

async fn commit(mut tx: ReadWriteTransaction) {
    tx.end(Ok::<_, TransactionError>(()), None).await.unwrap();
}

async fn roll_back(mut tx: ReadWriteTransaction) {
    let failed = Err::<(), _>(TransactionError::from(Error::from(ErrorKind::Closed)));
    assert_eq!(tx.end(failed, None).await.err().unwrap().kind(), ErrorKind::Closed);
}

fn insert(number: i64) -> Statement {
    let mut insert = Statement::new("INSERT INTO invoices (number) VALUES (@number)");
    insert.add_param("number", &number);
    insert
}

#[tokio::test]
async fn ids_commit_and_roll_back_with_their_rows() {
    let Some((_emulator, client)) = with_tables().await else { return };
    let mut tx = begin(&client).await;
    assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), 1);
    roll_back(tx).await;
    let mut tx = begin(&client).await;
    assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), 1, "no number was reserved");
    // The transaction sees its own writes, so it can draw any number of times.
    let three = reserve_in::<i64>(&mut tx, "invoices", 3).await.unwrap();
    assert_eq!(three.iter().collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), 5);
    assert_eq!(next_in::<i64>(&mut tx, "orders").await.unwrap(), 1);
    commit(tx).await;
    let mut tx = begin(&client).await;
    assert_eq!(reserve_in::<i64>(&mut tx, "invoices", 2).await.unwrap().start(), 6);
    roll_back(tx).await;
    let mut tx = begin(&client).await;
    assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), 6);
    roll_back(tx).await;
}

#[tokio::test]
async fn several_values_need_one_read_and_one_write() {
    let Some((emulator, client)) = with_tables().await else { return };
    let (invoices, orders) =
        (InTransaction::<i64>::new("invoices").unwrap(), InTransaction::<u32>::new("orders").unwrap());
    for first in [1, 1, 8] {
        let mut raw = begin(&client).await;
        // A `SequenceTransaction` that is created later sees this draw, which was written by DML.
        assert_eq!(next_in::<i64>(&mut raw, "invoices").await.unwrap(), first);
        let mut tx = SequenceTransaction::new(raw);
        for number in first + 1..first + 5 {
            assert_eq!(tx.next(&invoices).await.unwrap(), number);
            tx.update(insert(number)).await.unwrap();
        }
        assert_eq!(tx.next(&orders).await.unwrap(), 1 + u32::try_from(first / 8).unwrap());
        assert_eq!(
            tx.reserve(&invoices, 2).await.unwrap().iter().collect::<Vec<_>>(),
            [first + 5, first + 6]
        );
        // The first transaction is rolled back; the second and third are committed.
        let found = emulator.numbers("SELECT COUNT(*) FROM invoices").await;
        if first == 1 && found == [0] && rolled_back_once() {
            tx.rollback().await;
        } else {
            tx.commit().await.unwrap();
        }
    }
    let found = emulator.numbers("SELECT number FROM invoices ORDER BY number").await;
    assert_eq!(found, [2, 3, 4, 5, 9, 10, 11, 12]);
    assert_eq!(emulator.numbers("SELECT next_value FROM idmill_sequences ORDER BY name").await, [15, 3]);
}

/// Returns `true` on the first call only.
fn rolled_back_once() -> bool {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    ASKED.fetch_add(1, Ordering::Relaxed) == 0
}

#[tokio::test]
async fn dropped_transaction_takes_no_ids() {
    let Some((emulator, client)) = with_tables().await else { return };
    let invoices = InTransaction::<i64>::new("invoices").unwrap();
    let mut tx = SequenceTransaction::new(begin(&client).await);
    assert_eq!(tx.next(&invoices).await.unwrap(), 1);
    drop(tx);
    let store = emulator.store().await;
    assert_eq!(store.reserve(&request("invoices", 1)).await.unwrap().range.start(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_transactions_leave_no_gap() {
    let Some((emulator, _)) = with_tables().await else { return };
    number_invoices(&emulator).await;
}

/// Numbers invoices in six concurrent tasks, which use both ways of drawing and roll back a third of the
/// transactions. Returns the number of transactions that were begun.
pub(crate) async fn number_invoices(emulator: &Emulator) -> usize {
    let begun = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..6 {
        let (client, begun) = (emulator.client().await, begun.clone());
        tasks.spawn(async move {
            for round in 0..6 {
                until_committed(|| async {
                    begun.fetch_add(1, Ordering::Relaxed);
                    number_one(&client, task % 2 == 0, (task + round) % 3 == 0).await
                })
                .await
                .unwrap();
            }
        });
    }
    tasks.join_all().await;
    let found = emulator.numbers("SELECT number FROM invoices ORDER BY number").await;
    assert_eq!(
        found,
        (1..=48).collect::<Vec<_>>(),
        "one in three of 36 transactions with two numbers is rolled back"
    );
    begun.load(Ordering::Relaxed)
}

async fn number_one(client: &Client, several: bool, give_up: bool) -> Result<(), TransactionError> {
    let mut raw = client.begin_read_write_transaction().await?;

    let invoices = InTransaction::<i64>::new("invoices")?;
    if !several {
        let numbers = invoices.reserve(&mut raw, 2).await?;
        for number in numbers {
            raw.update(insert(number)).await?;
        }
        if give_up {
            roll_back(raw).await;
            return Ok(());
        }
        return raw.end(Ok::<_, TransactionError>(()), None).await.map(|_| ());
    }
    let mut tx = SequenceTransaction::new(raw);
    for _ in 0..2 {
        let number = tx.next(&invoices).await?;
        tx.update(insert(number)).await?;
    }
    if give_up {
        tx.rollback().await;
        return Ok(());
    }
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn bounds_tables_and_types_are_kept_to() {
    let Some((emulator, client)) = with_tables().await else { return };
    emulator.ddl(&[&SpannerStore::ddl("mine").unwrap()]).await;
    let bounds = Bounds::new(5, 9).unwrap();
    let small = InTransaction::<u32>::new("s").unwrap().bounds(bounds).table("mine").unwrap();
    let mut tx = begin(&client).await;
    assert_eq!(small.next(&mut tx).await.unwrap(), 5);
    let error = small.reserve(&mut tx, 5).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Exhausted, Some(Operation::Reserve)));
    let four = small.reserve(&mut tx, 4).await.unwrap();
    assert_eq!(four.iter().collect::<Vec<_>>(), [6, 7, 8, 9], "exactly, or nothing");
    assert_eq!(small.next(&mut tx).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(next_in::<u32>(&mut tx, "s").await.unwrap(), 1, "another table, another sequence");
    assert_eq!(small.reserve(&mut tx, 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(next_in::<u32>(&mut tx, "a\nb").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let zero = InTransaction::<NonZeroI64>::new("z").unwrap().bounds(Bounds::new(0, 9).unwrap());
    assert_eq!(zero.next(&mut tx).await.unwrap_err().kind(), ErrorKind::InvalidInput, "no such NonZero");
    commit(tx).await;
    let mut tx = SequenceTransaction::new(begin(&client).await);
    assert_eq!(tx.next(&small).await.unwrap_err().kind(), ErrorKind::Exhausted);
    let wide =
        InTransaction::<u64>::new("w").unwrap().bounds(Bounds::new(u32::MAX.into(), u64::MAX).unwrap());
    let narrow = InTransaction::<u32>::new("w").unwrap();
    assert_eq!(tx.next(&wide).await.unwrap(), u64::from(u32::MAX));
    assert_eq!(tx.next(&narrow).await.unwrap_err().kind(), ErrorKind::Exhausted, "for u32");
    assert_eq!(tx.next(&wide).await.unwrap(), u64::from(u32::MAX) + 1, "no number was reserved");
    tx.commit().await.unwrap();
    let nowhere = InTransaction::<u32>::new("w").unwrap().table("nowhere").unwrap();
    let error = nowhere.next(&mut begin(&client).await).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::NotFound, Some("w")));
}
