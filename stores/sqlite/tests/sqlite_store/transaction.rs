//! Gapless ids: drawn inside a transaction of the caller.

use std::num::NonZeroI64;
use std::path::Path;
use std::time::Duration;

use idmill::store::{Bounds, Reserve, Store};
use idmill::{ErrorKind, Operation, SequenceName};
use idmill_sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use idmill_sqlite::{InTransaction, SqliteStore, next_in, next_in_sql, reserve_in};

fn begin(db: &mut Connection) -> Transaction<'_> {
    db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn wal(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(120)).unwrap();
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    db
}

#[test]
fn ids_commit_and_roll_back_with_their_rows() {
    let mut db = Connection::open_in_memory().unwrap();
    let tx = begin(&mut db);
    assert_eq!(next_in::<i64>(&tx, "invoices").unwrap(), 1);
    drop(tx);
    let tables = "SELECT count(*) FROM sqlite_schema";
    assert_eq!(
        db.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(),
        0,
        "the table is rolled back too"
    );
    let tx = begin(&mut db);
    assert_eq!(next_in::<i64>(&tx, "invoices").unwrap(), 1, "no number was reserved");
    assert_eq!(reserve_in::<i64>(&tx, "invoices", 3).unwrap().iter().collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(next_in::<i64>(&tx, "orders").unwrap(), 1);
    tx.commit().unwrap();
    let tx = begin(&mut db);
    assert_eq!(reserve_in::<i64>(&tx, "invoices", 2).unwrap().start(), 5);
    tx.rollback().unwrap();
    assert_eq!(next_in::<i64>(&begin(&mut db), "invoices").unwrap(), 5);
}

#[test]
fn bounds_tables_and_types_are_kept_to() {
    let mut db = Connection::open_in_memory().unwrap();
    let tx = begin(&mut db);
    let bounds = Bounds::new(5, 9).unwrap();
    let small = InTransaction::<u32>::new("s").unwrap().bounds(bounds).table("mine").unwrap();
    assert_eq!(small.next(&tx).unwrap(), 5);
    let error = small.reserve(&tx, 5).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Exhausted, Some(Operation::Reserve)));
    assert_eq!(
        small.reserve(&tx, 4).unwrap().iter().collect::<Vec<_>>(),
        [6, 7, 8, 9],
        "exactly, or nothing"
    );
    assert_eq!(small.next(&tx).unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(next_in::<u32>(&tx, "s").unwrap(), 1, "another table, another sequence");
    assert_eq!(small.reserve(&tx, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(
        InTransaction::<u32>::new("s").unwrap().table("a\"b").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(next_in::<u32>(&tx, "a\nb").unwrap_err().kind(), ErrorKind::InvalidInput);
    let zero = InTransaction::<NonZeroI64>::new("z").unwrap().bounds(Bounds::new(0, 9).unwrap());
    assert_eq!(zero.next(&tx).unwrap_err().kind(), ErrorKind::InvalidInput, "no such NonZero");
    let wide =
        InTransaction::<u64>::new("w").unwrap().bounds(Bounds::new(u64::from(u32::MAX), u64::MAX).unwrap());
    let narrow = InTransaction::<u32>::new("w").unwrap();
    assert_eq!(wide.next(&tx).unwrap(), u64::from(u32::MAX));
    assert_eq!(narrow.next(&tx).unwrap_err().kind(), ErrorKind::Exhausted, "for u32");
    assert_eq!(wide.next(&tx).unwrap(), u64::from(u32::MAX) + 1, "no number was reserved");
}

#[test]
fn a_temporary_table_does_not_stand_in_for_the_real_one() {
    let mut db = Connection::open_in_memory().unwrap();
    let tx = begin(&mut db);
    assert_eq!(next_in::<i64>(&tx, "s").unwrap(), 1);
    tx.execute_batch("CREATE TEMP TABLE idmill_sequences AS SELECT * FROM main.idmill_sequences").unwrap();
    assert_eq!(next_in::<i64>(&tx, "s").unwrap(), 2);
    tx.execute_batch("DROP TABLE temp.idmill_sequences").unwrap();
    assert_eq!(next_in::<i64>(&tx, "s").unwrap(), 3);
}

#[test]
fn deferred_transactions_queue_and_leave_no_gap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    wal(&path).execute_batch("CREATE TABLE invoices (number INTEGER PRIMARY KEY)").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut db = wal(&path);
                for round in 0..40 {
                    let tx = db.transaction().unwrap(); // deferred
                    let number: i64 = next_in(&tx, "invoices").unwrap();
                    tx.execute("INSERT INTO invoices VALUES (?1)", [number]).unwrap();
                    if round % 4 == 0 { tx.rollback().unwrap() } else { tx.commit().unwrap() }
                }
            });
        }
    });
    let count = "SELECT count(*), max(number) FROM invoices";
    let found = wal(&path).query_row(count, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    assert_eq!(found.unwrap(), (180, 180));
}

#[test]
fn transaction_with_a_stale_read_must_be_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (wal(&dir.path().join("app.db")), wal(&dir.path().join("app.db")));
    let tx = begin(&mut b);
    assert_eq!(next_in::<i64>(&tx, "s").unwrap(), 1);
    tx.commit().unwrap();
    let stale = a.transaction().unwrap();
    stale.query_row("SELECT count(*) FROM idmill_sequences", [], |_| Ok(())).unwrap();
    let tx = begin(&mut b);
    assert_eq!(next_in::<i64>(&tx, "s").unwrap(), 2);
    tx.commit().unwrap();
    let error = next_in::<i64>(&stale, "s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("roll back, and begin again"), "{error}");
    stale.rollback().unwrap();
    assert_eq!(next_in::<i64>(&begin(&mut a), "s").unwrap(), 3);
}

#[tokio::test]
async fn the_store_and_transactions_share_a_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let name = SequenceName::new("s").unwrap();
    let request = Reserve::new(name, 10).create(Bounds::of::<u64>());
    assert_eq!(store.reserve(&request).await.unwrap().range.start(), 1);
    let mut db = wal(&path);
    let tx = begin(&mut db);
    assert_eq!(next_in::<u64>(&tx, "s").unwrap(), 11);
    tx.commit().unwrap();
    assert_eq!(store.reserve(&request).await.unwrap().range.start(), 12);
}

#[test]
fn a_foreign_table_and_a_corrupt_row_are_refused() {
    let mut db = Connection::open_in_memory().unwrap();
    let tx = begin(&mut db);
    tx.execute_batch("CREATE TABLE mine (a)").unwrap();
    let foreign = InTransaction::<i64>::new("s").unwrap().table("mine").unwrap();
    assert_eq!(foreign.next(&tx).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(next_in::<i64>(&tx, "s").unwrap(), 1);
    tx.execute("UPDATE idmill_sequences SET next = 0", []).unwrap();
    let error = next_in::<i64>(&tx, "s").unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::StoreViolation, Some("s")));
}

/// The statement takes the ids that this crate would take, up to both ends of the numbers.
#[tokio::test]
async fn statement_for_other_drivers_draws_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let most = i64::MAX.unsigned_abs();
    for (name, start, max) in
        [("few", 1, 5), ("zero", 0, 0), ("high", most - 2, most), ("wide", most - 2, u64::MAX)]
    {
        let bounds = Bounds::new(start, max).unwrap();
        store.create(&SequenceName::new(name).unwrap(), bounds).await.unwrap();
    }
    let (sql, mut db) = (next_in_sql("idmill_sequences").unwrap(), wal(&path));
    let draw = |tx: &Transaction<'_>, name: &str, count: i64| -> Option<i64> {
        let drawn = tx.query_row(&sql, (name, count), |row| row.get(0));
        idmill_sqlite::rusqlite::OptionalExtension::optional(drawn).unwrap()
    };
    let tx = begin(&mut db);
    assert_eq!(draw(&tx, "few", 2), Some(1));
    tx.rollback().unwrap();
    let tx = begin(&mut db);
    assert_eq!([2, 4, 1].map(|count| draw(&tx, "few", count)), [Some(1), None, Some(3)]);
    assert_eq!(next_in::<u64>(&tx, "few").unwrap(), 4);
    assert_eq!([1, 1].map(|count| draw(&tx, "few", count)), [Some(5), None]);
    assert_eq!([1, 1].map(|count| draw(&tx, "zero", count)), [Some(0), None]);
    assert_eq!([4, 3, 1].map(|count| draw(&tx, "high", count)), [None, Some(i64::MAX - 2), None]);
    assert_eq!([3, 2, 1].map(|count| draw(&tx, "wide", count)), [None, Some(i64::MAX - 2), None]);
    assert_eq!([0, -1].map(|count| draw(&tx, "few", count)), [None; 2]);
    assert_eq!(draw(&tx, "missing", 1), None);
    tx.commit().unwrap();
    for (name, next) in [("few", None), ("zero", None), ("high", None), ("wide", Some(most))] {
        let info = store.inspect(&SequenceName::new(name).unwrap()).await.unwrap().unwrap();
        assert_eq!(info.next, next, "{name}");
    }
}
