//! Errors of the emulator, and how the store classifies them.

use idmill::ErrorKind;
use idmill::ErrorKind::{Conflict, InvalidInput, NotFound, StoreViolation};
use idmill::store::{Page, Store};
use idmill_spanner::gcloud_spanner::mutation::{insert, insert_or_update};
use idmill_spanner::{SpannerOptions, SpannerStore};

use crate::setup::{Emulator, request};

const FULL: &str = "next_value INT64, start_value INT64, max_value INT64, incarnation INT64, epoch INT64";

#[tokio::test]
async fn foreign_tables_are_rejected() {
    let Some(emulator) = Emulator::start().await else { return };
    emulator
        .ddl(&[
            "CREATE TABLE no_name (id INT64 NOT NULL, next_value INT64) PRIMARY KEY (id)",
            "CREATE TABLE no_next (name STRING(64) NOT NULL) PRIMARY KEY (name)",
            "CREATE TABLE text (name STRING(64) NOT NULL, next_value STRING(64)) PRIMARY KEY (name)",
            "CREATE TABLE a_part (name STRING(64) NOT NULL, next_value INT64, epoch INT64) PRIMARY KEY (name)",
        ])
        .await;
    for (table, hint) in [
        ("no_name", "?table=NAME"),
        ("no_next", "?table=NAME"),
        ("text", "next_value"),
        ("a_part", "ADD COLUMN max_value"),
    ] {
        let error = SpannerStore::open_with(emulator.options().table(table)).await.unwrap_err();
        assert_eq!(error.kind(), Conflict, "{table}: {error:?}");
        assert!(error.to_string().contains(hint), "{table}: {error}");
    }
}

#[tokio::test]
async fn foreign_constraints_reject_the_row_by_name() {
    let Some(emulator) = Emulator::start().await else { return };
    let table = |name: &str, rest: &str| {
        format!("CREATE TABLE {name} (name STRING(200) NOT NULL, {FULL}, {rest}) PRIMARY KEY (name)")
    };
    emulator
        .ddl(&[
            &table("needs", "owner STRING(10) NOT NULL"),
            &table("checks", "CONSTRAINT odd CHECK (next_value < 5)"),
            &table("narrow", "x INT64").replace("200", "3"),
            &table("once", "x INT64"),
            "CREATE UNIQUE INDEX one ON once (start_value)",
        ])
        .await;
    let cases: [(&str, &str, ErrorKind, &str); 4] = [
        ("needs", "s", Conflict, "owner"),
        ("checks", "s", Conflict, "odd"),
        ("narrow", "long", InvalidInput, "STRING(200)"),
        ("once", "t", Conflict, "one"),
    ];
    let first = SpannerStore::open_with(emulator.options().table("once")).await.unwrap();
    first.reserve(&request("s", 9)).await.unwrap();
    for (table, sequence, kind, hint) in cases {
        let store = SpannerStore::open_with(emulator.options().table(table)).await.unwrap();
        let error = store.reserve(&request(sequence, 9)).await.unwrap_err();
        println!("{table}: {:?}", std::error::Error::source(&error));
        assert_eq!(error.kind(), kind, "{table}: {error:?}");
        assert!(error.to_string().contains(hint), "{table}: {error}");
        assert!(store.list_all().await.unwrap().len() < 2, "{table}: nothing was written");
    }
}

#[tokio::test]
async fn missing_table_or_database_is_not_found() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.store().await;
    store.reserve(&request("s", 9)).await.unwrap();
    emulator.ddl(&["DROP TABLE idmill_sequences"]).await;
    for error in [
        store.reserve(&request("s", 1)).await.unwrap_err(),
        store.list_all().await.unwrap_err(),
        SpannerStore::open_with(emulator.options().mode(idmill_spanner::Mode::ReadOnly)).await.unwrap_err(),
    ] {
        println!("{:?}", std::error::Error::source(&error));
        assert_eq!(error.kind(), NotFound, "{error:?}");
        assert!(error.to_string().contains("restore it"), "{error}");
    }
    for database in
        ["projects/test/instances/test/databases/none", "projects/test/instances/none/databases/none"]
    {
        let options = SpannerOptions::new(database).emulator(emulator.address());
        let error = SpannerStore::open_with(options.mode(idmill_spanner::Mode::ReadWrite)).await.unwrap_err();
        println!("{:?}", std::error::Error::source(&error));
        assert_eq!(error.kind(), NotFound, "{error:?}");
    }
}

#[tokio::test]
async fn invalid_database_names_are_rejected() {
    let Some(emulator) = Emulator::start().await else { return };
    for (database, hint) in [
        ("projects/test/instances/i/databases/test", "Instance ID must"),
        ("projects/test/instances/test/databases/d", "Invalid database name"),
    ] {
        let options = SpannerOptions::new(database).emulator(emulator.address());
        let error = SpannerStore::open_with(options).await.unwrap_err();
        assert_eq!(error.kind(), InvalidInput, "{error:?}");
        assert!(error.to_string().contains(hint) && error.to_string().contains("another name"), "{error}");
    }
}

#[tokio::test]
async fn rows_that_cannot_be_are_named_and_refused() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.store().await;
    let columns = ["name", "next_value", "start_value", "max_value", "incarnation", "epoch"];
    let full = [Some(15), Some(10), Some(20), Some(1), Some(0)];
    for (column, value, fault) in [
        (0, Some(5), "next 5 outside"),
        (0, Some(22), "next 22 outside"),
        (0, Some(-1), "outside"),
        (0, None, "no next_value"),
        (1, Some(21), "invalid bounds"),
        (3, Some(0), "incarnation 0"),
        (3, Some(-3), "incarnation -3"),
        (4, Some(-1), "epoch -1"),
        (2, None, "only some"),
    ] {
        let mut row: [Option<i64>; 5] = full;
        row[column] = value;
        let write = insert_or_update(
            "idmill_sequences",
            &columns,
            &[&"s", &row[0], &row[1], &row[2], &row[3], &row[4]],
        );
        emulator.write(vec![write]).await;
        let error = store.reserve(&request("s", 1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreViolation, "{row:?}");
        assert!(error.to_string().contains(fault) && error.to_string().contains("\"s\""), "{row:?}: {error}");
    }
    emulator.write(vec![insert("idmill_sequences", &["name"], &[&" s"])]).await;
    assert_eq!(store.list_all().await.unwrap_err().kind(), StoreViolation);
    store.reserve(&request("t", 1)).await.unwrap();
    let listing = store.list(&Page::default()).await.unwrap();
    let good: Vec<_> = listing.sequences.iter().map(|info| &*info.name).collect();
    let bad: Vec<_> = listing.unreadable.iter().map(|row| (&*row.name, row.error.kind())).collect();
    assert_eq!((good, bad), (vec!["t"], vec![(" s", StoreViolation), ("s", StoreViolation)]));
}
