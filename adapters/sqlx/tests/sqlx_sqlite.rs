//! Tests over pools of real SQLite files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use idmill_sqlx::Mode;
use idmill_sqlx::driver::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use idmill_sqlx::driver::{self as sqlx, Connection, Executor as _, SqlitePool};
use idmill_sqlx::idmill::store::{Bounds, Grant, Reserve, Store};
use idmill_sqlx::idmill::{ErrorKind, IdRange, Result, SequenceName, Sequences};
use idmill_sqlx::sqlite::{InTransaction, SqliteOptions, SqliteStore, ddl, next_in, reserve_in};

fn options(dir: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(dir.join("shop.db")).create_if_missing(true)
}

/// The pool of a service, with its own connection settings.
fn pool(dir: &Path, most: u32) -> SqlitePool {
    let options = options(dir).journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Off);
    SqlitePoolOptions::new()
        .max_connections(most)
        .connect_lazy_with(options.busy_timeout(Duration::from_secs(60)))
}

fn patient() -> SqliteOptions {
    SqliteOptions::new().busy_timeout(Duration::from_secs(60))
}

async fn open(pool: &SqlitePool) -> SqliteStore {
    SqliteStore::with_options(pool, patient()).await.unwrap()
}

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

async fn reserve(store: &dyn Store, name: &str, count: u64) -> Result<Grant> {
    let name = self::name(name);
    store.reserve(&Reserve::new(name, count).create(Bounds::of::<u64>())).await
}

/// The first and the last id.
fn ids(range: IdRange) -> (u64, u64) {
    (range.start(), u64::try_from(range.end() - 1).unwrap())
}

/// Several clients write invoices concurrently, and some roll back: no number is missing or
/// duplicated.
#[tokio::test]
async fn rollbacks_leave_no_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(dir.path(), 4);
    pool.execute("CREATE TABLE invoices (number INTEGER PRIMARY KEY)").await.unwrap();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for round in 0..25 {
                    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                    let number: i64 = next_in(&mut tx, "invoices").await.unwrap();
                    let insert = sqlx::query("INSERT INTO invoices VALUES (?1)").bind(number);
                    insert.execute(&mut *tx).await.unwrap();
                    match (round + writer) % 4 {
                        0 => tx.rollback().await.unwrap(),
                        1 => drop(tx),
                        _ => tx.commit().await.unwrap(),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let numbers: Vec<i64> = sqlx::query_scalar("SELECT number FROM invoices").fetch_all(&pool).await.unwrap();
    let count = i64::try_from(numbers.len()).unwrap();
    assert!(count >= 48, "{count}");
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), (1..=count).collect());
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(dir.path(), 2);
    let store = open(&pool).await;
    store.create(&name("few"), Bounds::new(1, 5).unwrap()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(ids(reserve_in::<u64>(&mut tx, "few", 3).await.unwrap()), (1, 3));
    assert_eq!(reserve_in::<u64>(&mut tx, "few", 3).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(reserve_in::<u64>(&mut tx, "few", 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(ids(reserve_in::<u64>(&mut tx, "few", 2).await.unwrap()), (4, 5), "all or nothing");
    tx.commit().await.unwrap();
    assert_eq!(reserve(&store, "few", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
    let numbers = InTransaction::<i64>::new("s").unwrap().table("numbers").unwrap();
    let mut tx = pool.begin().await.unwrap();
    let bounded = numbers.bounds(Bounds::new(7, 9).unwrap());
    assert_eq!(bounded.next(&mut tx).await.unwrap(), 7, "the table is created with the first");
    tx.rollback().await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let error = next_in::<i64>(&mut connection, "few").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(!connection.is_in_transaction());
    assert!(ddl("numbers").unwrap().contains("numbers"));
}

/// Handlers that wait for an id hold every connection of the pool.
#[tokio::test]
async fn refill_succeeds_while_the_pool_is_exhausted() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(dir.path(), 1);
    let store: Arc<dyn Store> = Arc::new(open(&pool).await);
    let sequences = Sequences::new(store).unwrap();
    let mut tx = pool.begin().await.unwrap();
    let orders = sequences.sequence::<i64>("orders").await.unwrap();
    let draw = async {
        for expected in 1..2_000 {
            assert_eq!(orders.next().await.unwrap(), expected);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), draw).await.expect("it draws while the pool is exhausted");
    tx.execute("SELECT 1").await.unwrap();
    tx.rollback().await.unwrap();
    sequences.close().await;
}

/// As documented: a write transaction locks the database.
#[tokio::test]
async fn reserve_during_a_write_transaction_reports_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(dir.path(), 2);
    let options = SqliteOptions::new().busy_timeout(Duration::from_millis(100));
    let store = SqliteStore::with_options(&pool, options).await.unwrap();
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = reserve(&store, "orders", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("another connection holds the lock"), "{error}");
    assert_eq!(next_in::<u64>(&mut tx, "orders").await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(ids(reserve(&store, "orders", 3).await.unwrap().range), (2, 4));
}

/// A dropped call closes its connection, which rolls back its transaction; the next call opens a new
/// connection.
#[tokio::test]
async fn calls_that_are_dropped_leave_nothing_open() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(dir.path(), 2);
    let store = open(&pool).await;
    let mut last = 0;
    for round in 0..60 {
        let call = reserve(&store, "s", 3);
        let granted = tokio::time::timeout(Duration::from_micros(round * 20), call).await;
        if let Ok(grant) = granted {
            let (first, end) = ids(grant.unwrap().range);
            assert!(first > last, "{first} after {last}");
            last = end;
        }
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let id = next_in::<u64>(&mut tx, "s").await.unwrap();
        assert!(id > last, "{id} after {last}");
        tx.commit().await.unwrap();
        last = id;
    }
    assert!(ids(reserve(&store, "s", 1).await.unwrap().range).0 > last);
}

#[tokio::test]
async fn opening_makes_no_more_than_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.db");
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let missing = SqlitePoolOptions::new().connect_lazy_with(options(dir.path()));
        let options = SqliteOptions::new().mode(mode).busy_timeout(Duration::ZERO);
        SqliteStore::with_options(&missing, options).await.unwrap_err();
        assert!(!file.exists(), "none is created");
    }
    let pool = pool(dir.path(), 1);
    let store = open(&pool).await;
    let reader = SqliteStore::with_options(&pool, patient().mode(Mode::ReadOnly)).await.unwrap();
    assert_eq!(reserve(&reader, "s", 1).await.unwrap_err().kind(), ErrorKind::Denied);
    let other = SqliteStore::with_options(&pool, patient().table("numbers")).await.unwrap();
    assert_eq!(ids(reserve(&other, "s", 1).await.unwrap().range), (1, 1));
    assert_eq!(ids(reserve(&store, "s", 2).await.unwrap().range), (1, 2));
    let error = SqliteStore::with_options(&pool, patient().table("a b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let memory = SqlitePool::connect("sqlite::memory:").await.unwrap();
    let error = SqliteStore::from_pool(&memory).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    // A missing file is detected, and not recreated.
    std::fs::rename(&file, dir.path().join("aside.db")).unwrap();
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::StoreViolation);
    // A connection that replaces a lost one does not recreate the file either.
    std::fs::rename(dir.path().join("aside.db"), &file).unwrap();
    drop(tokio::time::timeout(Duration::ZERO, reserve(&store, "s", 1)).await);
    std::fs::rename(&file, dir.path().join("aside.db")).unwrap();
    reserve(&store, "s", 1).await.unwrap_err();
    assert!(!file.exists());
}
