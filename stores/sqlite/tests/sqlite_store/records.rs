//! Records: when their table is created, and when it is not.

use idmill::ErrorKind;
use idmill::store::{Page, Store};
use idmill_guard::{StoreWitness, Witness};
use idmill_kit::Mode;
use idmill_sqlite::{SqliteOptions, SqliteStore};

use crate::{Place, name, reserve, schemes};

fn tables(place: &Place) -> Vec<String> {
    let raw = place.raw();
    let mut tables =
        raw.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
    tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

async fn opened(place: &Place, mode: Mode) -> SqliteStore {
    SqliteStore::open_with(SqliteOptions::new(place.file()).mode(mode)).await.unwrap()
}

#[tokio::test]
async fn their_table_is_made_for_the_first_of_them() {
    let place = Place::new();
    let store = place.open().await;
    let s = name("s");
    reserve(&store, "s", 1).await.unwrap();
    assert_eq!(store.record(&s).await.unwrap(), None);
    assert_eq!(store.list_records(&Page::default()).await.unwrap().records, []);
    assert!(!store.swap_record(&s, Some("a"), "b").await.unwrap());
    assert_eq!(tables(&place), ["idmill_sequences"]);
    assert!(store.swap_record(&s, None, "a").await.unwrap());
    assert_eq!(tables(&place), ["idmill_sequences", "idmill_witness"]);
    assert_eq!(place.open().await.record(&s).await.unwrap().as_deref(), Some("a"));
}

#[tokio::test]
async fn missing_witness_table_error_contains_the_ddl() {
    let place = Place::new();
    place.open().await;
    let s = name("s");
    let store = opened(&place, Mode::ReadWrite).await;
    let error = store.swap_record(&s, None, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let url = schemes().parse(&format!("sqlite:{}", place.file().display())).unwrap();
    let ddl = url.witness_ddl().unwrap().unwrap();
    assert!(error.to_string().contains(&ddl), "{error}");
    place.raw().execute_batch(&ddl).unwrap();
    assert!(store.swap_record(&s, None, "a").await.unwrap());
    let error = opened(&place, Mode::ReadOnly).await.swap_record(&s, Some("a"), "b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn foreign_witness_table_or_record_is_rejected_by_name() {
    let place = Place::new();
    let store = place.open().await;
    let s = name("s");
    place.raw().execute_batch("CREATE TABLE idmill_witness (name TEXT, what TEXT)").unwrap();
    for error in [
        store.record(&s).await.unwrap_err(),
        store.swap_record(&s, None, "a").await.unwrap_err(),
        store.list_records(&Page::default()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("its columns are name, what"), "{error}");
    }
    place.raw().execute_batch("DROP TABLE idmill_witness").unwrap();
    assert!(store.swap_record(&s, None, "a").await.unwrap());
    let raw = place.raw();
    raw.pragma_update(None, "ignore_check_constraints", true).unwrap();
    raw.execute_batch("UPDATE idmill_witness SET record = x'00'").unwrap();
    let error = store.swap_record(&s, Some("a"), "b").await.unwrap_err();
    assert!(error.kind() == ErrorKind::StoreViolation && error.to_string().contains("\"s\""), "{error}");
    let records = store.list_records(&Page::default()).await.unwrap();
    assert_eq!((records.records.len(), &*records.unreadable[0].name), (0, "s"));
}

#[tokio::test]
async fn each_table_has_records_unless_its_name_is_too_long() {
    let place = Place::new();
    let named = |table: &str| SqliteStore::open_with(SqliteOptions::new(place.file()).table(table));
    let s = name("s");
    for table in ["idmill", "numbers", "idmill_sequences"] {
        assert!(named(table).await.unwrap().swap_record(&s, None, table).await.unwrap(), "{table}");
    }
    let (longest, longer) = ("t".repeat(55), "t".repeat(56));
    assert!(named(&longest).await.unwrap().swap_record(&s, None, "a").await.unwrap());
    let error = named(&longer).await.unwrap().swap_record(&s, None, "a").await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("at most 55"), "{error}");
}

#[tokio::test]
async fn it_is_a_witness() {
    let place = Place::new();
    let witness = StoreWitness::new(place.open().await).unwrap();
    assert!(witness.read(&name("s")).await.unwrap().is_none());
}
