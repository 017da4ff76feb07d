//! Tables and rows: valid ones, and the rejection of invalid ones.

use std::collections::BTreeSet;

use idmill::ErrorKind;
use idmill::store::{Bounds, Change, Cursor, Page, Pages, Store};
use idmill_sqlite::rusqlite::params;
use idmill_sqlite::{SqliteOptions, SqliteStore};

use crate::{Place, inspect, name, refused, reserve};

#[tokio::test]
async fn rows_read_in_the_shell_as_they_are() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "orders", 1000).await.unwrap();
    let row = place.raw().query_row("SELECT next, start, max, epoch FROM idmill_sequences", [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    assert_eq!(row.unwrap(), (1001_i64, 1_i64, -1_i64, 0_i64));
}

#[tokio::test]
async fn a_corrupt_row_is_named_never_served_and_can_be_removed() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "orders", 10).await.unwrap();
    place.raw().execute("UPDATE idmill_sequences SET next = 50, max = 40", []).unwrap();
    for error in [
        reserve(&store, "orders", 1).await.unwrap_err(),
        store.inspect(&name("orders")).await.unwrap_err(),
        store.list_all().await.unwrap_err(),
        store.set(&name("orders"), Change::default()).await.unwrap_err(),
        store.create(&name("orders"), Bounds::of::<u64>()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::StoreViolation);
        assert!(
            error.to_string().contains("the row \"orders\" of `idmill_sequences` has next 50"),
            "{error}"
        );
    }
    reserve(&store, "fine", 10).await.unwrap();
    let listing = store.list(&Page::default()).await.unwrap();
    assert_eq!(listing.sequences, [inspect(&store, "fine").await], "unreadable rows are listed apart");
    assert_eq!(listing.unreadable[0].name, "orders");
    assert_eq!(listing.unreadable[0].error.kind(), ErrorKind::StoreViolation);
    assert!(store.remove(&name("orders"), None).await.unwrap());
}

/// Invalid rows count in a page, and a page can end with one.
#[tokio::test]
async fn pages_have_each_row_once_whatever_it_holds() {
    let place = Place::new();
    let store = place.open().await;
    let names: Vec<_> =
        (0..50).map(|number| format!("{}{number:02}", if number < 30 { "a%" } else { "a_" })).collect();
    for text in &names {
        store.create(&name(text), Bounds::of::<u64>()).await.unwrap();
    }
    place.raw().execute("UPDATE idmill_sequences SET next = 50, max = 40 WHERE name LIKE '%3'", []).unwrap();
    place
        .raw()
        .execute("UPDATE idmill_sequences SET name = CAST(x'61255ff0' AS TEXT) WHERE name = 'a%29'", [])
        .unwrap();
    for (prefix, first, last) in [("", 0, 50), ("a%", 0, 30), ("a_", 30, 50), ("a_4", 40, 50), ("b", 0, 0)] {
        let mut pages = Pages::new(&store, Page::of(prefix).limit(4));
        let (mut good, mut bad, mut most) = (Vec::new(), Vec::new(), 0);
        while let Some(page) = pages.next().await.unwrap() {
            most = most.max(page.sequences.len() + page.unreadable.len());
            good.extend(page.sequences.into_iter().map(|info| info.name.to_string()));
            bad.extend(page.unreadable.into_iter().map(|row| row.name));
        }
        let expected = |bad: bool| {
            let names =
                names[first..last].iter().filter(|text| (text.ends_with('3') || *text == "a%29") == bad);
            names
                .map(|text| if text == "a%29" { "a%_\u{fffd}".to_owned() } else { text.clone() })
                .collect::<Vec<_>>()
        };
        assert_eq!((good, bad), (expected(false), expected(true)), "{prefix}");
        assert!(most <= 4);
    }
    let strange = Page::default().after(Cursor::new("strange"));
    assert_eq!(store.list(&strange).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn unusual_names_stay_distinct_and_list_in_order() {
    let place = Place::new();
    let store = place.open().await;
    let odd = [
        "'",
        "\"",
        "a'); DROP TABLE x;--",
        "?1",
        "%",
        "_",
        "A",
        "a",
        "é",
        "e\u{301}",
        "😀",
        "\u{fffd}",
        "a b",
    ];
    for (n, text) in (1..).zip(odd) {
        assert_eq!(reserve(&store, text, n).await.unwrap(), (1, n));
    }
    for (n, text) in (1..).zip(odd) {
        assert_eq!(inspect(&store, text).await.next, Some(n + 1), "{text}");
    }
    let listed: Vec<_> = store.list_all().await.unwrap().into_iter().map(|info| info.name).collect();
    let sorted: Vec<_> = odd.iter().map(|text| name(text)).collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(listed, sorted);
}

#[tokio::test]
async fn a_database_of_utf_16_serves_as_well() {
    let place = Place::new();
    place.raw().execute_batch("PRAGMA encoding = 'UTF-16le'; CREATE TABLE mine (a)").unwrap();
    let store = place.open().await;
    let names = ["b00", "\u{162}", "\u{fffd}", "😀"];
    for text in names {
        assert_eq!(reserve(&store, text, 5).await.unwrap(), (1, 5));
        assert_eq!(reserve(&store, text, 5).await.unwrap(), (6, 5));
    }
    let listed: Vec<_> = store.list_all().await.unwrap().iter().map(|info| info.name.to_string()).collect();
    assert_eq!(listed, names, "in the order of Unicode, not of UTF-16");
}

#[tokio::test]
async fn tables_are_namespaces() {
    let place = Place::new();
    let other = SqliteOptions::new(place.file()).table("other");
    let (a, b) = (place.open().await, SqliteStore::open_with(other).await.unwrap());
    assert_eq!(reserve(&a, "s", 5).await.unwrap(), (1, 5));
    assert_eq!(reserve(&b, "s", 5).await.unwrap(), (1, 5));
    assert_ne!(inspect(&a, "s").await.identity.incarnation, inspect(&b, "s").await.identity.incarnation);
    place.raw().execute_batch("CREATE TABLE mine (name, a)").unwrap();
    let mine = SqliteOptions::new(place.file()).table("mine");
    refused(mine, ErrorKind::Conflict, "other columns: name, a; name another").await;
}

#[tokio::test]
async fn an_existing_database_keeps_its_journal_and_its_tables() {
    let place = Place::new();
    place.raw().execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (7)").unwrap();
    let store = place.open().await;
    assert_eq!(reserve(&store, "s", 5).await.unwrap(), (1, 5));
    let db = place.raw();
    let mode: String = db.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    assert_eq!(db.query_row("SELECT a FROM mine", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
}

#[tokio::test]
async fn rows_of_a_later_version_are_not_changed() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "s", 5).await.unwrap();
    let db = place.raw();
    db.pragma_update(None, "ignore_check_constraints", true).unwrap();
    db.execute("UPDATE idmill_sequences SET format = ?1", params![2]).unwrap();
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Unsupported);
}
