//! The table of the dialect in a real database.

use idmill::store::{Bounds, Identity, Page, SequenceInfo};
use idmill::{ErrorKind, SequenceName};
use idmill_sql::sqlite::Table;
use idmill_sql::{Answer, Executor, Statement, at_once};
use proptest::prelude::*;
use rusqlite::{Connection, TransactionBehavior};

use crate::InTransaction;
use crate::executor::Own;

fn table() -> (Own, Table) {
    let (db, table) = (Connection::open_in_memory().unwrap(), Table::new("t").unwrap());
    db.execute_batch(&table.ddl()).unwrap();
    (Own(db), table)
}

fn answer(db: &mut Own, statement: Statement<'_>) -> Answer {
    at_once(db.execute(statement)).unwrap()
}

proptest! {
    #[test]
    fn rows_read_back_as_written(name in "\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
        let Ok(name) = SequenceName::new(&name) else { return Ok(()) };
        let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
        let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
        let identity = Identity { epoch, ..Identity::fresh() };
        let info = SequenceInfo::stored(name, (!all).then_some(next), bounds, identity);
        let (mut db, table) = table();
        prop_assert_eq!(answer(&mut db, table.insert(&info)).changed, 1);
        let read = answer(&mut db, table.select(&info.name));
        prop_assert_eq!(read.rows.len(), 1);
        prop_assert_eq!(table.decode(&read.rows[0]).unwrap(), info.clone());
        let mut later = info;
        later.next = None;
        prop_assert_eq!(answer(&mut db, table.update(&later)).changed, 1);
        let page = Page::default();
        let read = answer(&mut db, table.select_page(&page).unwrap());
        prop_assert_eq!(table.listing(&page, &read).sequences, vec![later]);
    }
}

#[test]
fn rows_that_cannot_be_are_named_and_refused() {
    let (mut db, table) = table();
    db.0.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let s = SequenceName::new("s").unwrap();
    for (row, fault) in [
        ("5, 10, 20, 1, 0, 1", "next 5 outside"),
        ("21, 10, 20, 1, 0, 1", "next 21 outside"),
        ("-1, 10, 20, 1, 0, 1", "next 18446744073709551615 outside"),
        ("15, 20, 10, 1, 0, 1", "invalid bounds"),
        ("15, 10, 20, 0, 0, 1", "incarnation 0"),
        ("15, 10, 20, -3, 0, 1", "incarnation -3"),
        ("15, 10, 20, 1, -1, 1", "epoch -1"),
        ("'x', 10, 20, 1, 0, 1", "no whole number for next"),
        ("1.5, 1, 20, 1, 0, 1", "no whole number for next"),
        ("15, 10, x'00', 1, 0, 1", "no whole number for max"),
        ("15, 10, 20, 1, 0, 2", "another format"),
    ] {
        db.0.execute_batch(&format!("DELETE FROM t; INSERT INTO t VALUES ('s', {row})")).unwrap();
        let error = table.decode(&answer(&mut db, table.select(&s)).rows[0]).unwrap_err();
        let expected =
            if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
        assert_eq!(error.kind(), expected, "{row}");
        assert!(error.to_string().contains(fault) && error.to_string().contains("\"s\""), "{row}: {error}");
    }
}

#[test]
fn table_constraints_reject_invalid_rows() {
    let (Own(db), _) = table();
    for row in [
        "'a', 1, 10, 20, 0, 0, 1",
        "'a', 1, 10, 20, 1, 0, 2",
        "'a', 'x', 10, 20, 1, 0, 1",
        "x'61', 1, 1, 1, 1, 1, 1",
    ] {
        assert!(db.execute_batch(&format!("INSERT INTO t VALUES ({row})")).is_err(), "{row}");
    }
    assert!(db.execute_batch("INSERT INTO t VALUES ('a', NULL, 10, 20, 1, 0, 1)").is_ok());
}

#[test]
fn a_silent_trigger_is_noticed() {
    let (Own(mut db), table) = table();
    let ids = InTransaction::<u64>::new("s").unwrap().table(table.name()).unwrap();
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let reserve = || ids.reserve(&transaction, 5);
    reserve().unwrap();
    transaction
        .execute_batch("CREATE TRIGGER no BEFORE UPDATE ON t BEGIN SELECT RAISE(IGNORE); END")
        .unwrap();
    let error = reserve().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation);
    assert!(error.to_string().contains("Query changed 0 rows"), "{error}");
}
