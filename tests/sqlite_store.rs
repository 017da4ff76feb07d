//! The SQLite store against real files: what it promises, and what it refuses.
#![cfg(feature = "sqlite")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use idmill::store::sqlite::rusqlite::{Connection, params};
use idmill::store::sqlite::{Mode, SqliteOptions, SqliteStore};
use idmill::store::{Bounds, Change, GiveBack, Grant, Identity, Reserve, SequenceInfo, Store};
use idmill::{Error, ErrorKind, Operation, Range, Result, SequenceName};

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve { name: name(text), count, ceiling: u64::MAX, create: Bounds::of::<u64>() }
}

async fn reserve(store: &SqliteStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

async fn inspect(store: &SqliteStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ids.db")
    }

    async fn open(&self) -> SqliteStore {
        SqliteStore::open(self.file()).await.unwrap()
    }

    fn raw(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }
}

async fn refused(options: SqliteOptions, kind: ErrorKind, hint: &str) -> Error {
    let error = SqliteStore::open_with(options).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(hint), "{error}");
    assert_eq!(error.operation(), Some(Operation::Connect));
    error
}

/// Panics if an id is in two of the ranges; returns how many ids there are.
fn disjoint(grants: &[Grant]) -> u64 {
    let mut ranges: Vec<_> = grants.iter().map(|grant| grant.range).collect();
    ranges.sort_by_key(idmill::Range::start);
    for pair in ranges.windows(2) {
        assert!(!pair[0].overlaps(&pair[1]), "{pair:?}");
    }
    ranges.iter().map(idmill::Range::len).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ranges_are_disjoint_among_tasks_and_connections() {
    let place = Place::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = place.open().await;
        for task in 0..4 {
            let store = store.clone();
            tasks.spawn(async move {
                let mut grants = Vec::new();
                for count in 1..=15 {
                    grants.push(store.reserve(&request("s", count + task)).await.unwrap());
                }
                grants
            });
        }
    }
    let grants: Vec<Grant> = tasks.join_all().await.into_iter().flatten().collect();
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
                        let store = SqliteStore::open(file).await?;
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

/// How many transactions are in the write-ahead log: frames whose header has a database size end one.
fn commits(place: &Place) -> usize {
    let wal = std::fs::read(place.dir.path().join("ids.db-wal")).unwrap();
    let page = u32::from_be_bytes(wal[8..12].try_into().unwrap()) as usize;
    wal[32..].chunks_exact(24 + page).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn a_batch_is_one_transaction_in_which_each_failure_is_its_own() {
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
    let request = Reserve { ceiling: 9, create: Bounds::new(10, 20).unwrap(), ..request("s", 1) };
    assert_eq!(store.reserve(&request).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(store.list().await.unwrap(), []);
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
        store.list().await.unwrap_err(),
        store.set(&name("orders"), Change::default()).await.unwrap_err(),
        store.create(&name("orders"), Bounds::of::<u64>()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::StoreViolation);
        assert!(
            error.to_string().contains("the row \"orders\" of `idmill_sequences` has next 50"),
            "{error}"
        );
    }
    assert!(store.remove(&name("orders")).await.unwrap());
}

#[tokio::test]
async fn names_with_every_odd_character_are_kept_apart_and_listed_in_order() {
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
    let listed: Vec<_> = store.list().await.unwrap().into_iter().map(|info| info.name).collect();
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
    let listed: Vec<_> = store.list().await.unwrap().iter().map(|info| info.name.to_string()).collect();
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
    refused(mine, ErrorKind::Conflict, "columns name, a; name another").await;
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
    let forward = Change { next: Some(50), max: Some(200), ..Change::default() };
    let set = store.set(&s, forward).await.unwrap();
    assert_eq!((set.next, set.bounds.max(), set.identity), (Some(50), 200, created.identity));
    let back = Change { next: Some(20), ..Change::default() };
    let error = store.set(&s, back).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Conflict, Some(Operation::Set)));
    assert_eq!(inspect(&store, "s").await, set, "a refused change changes nothing");
    let back = store.set(&s, Change { backwards: true, ..back }).await.unwrap();
    assert_eq!((back.next, back.identity.epoch), (Some(20), created.identity.epoch + 1));
    assert_eq!(inspect(&place.open().await, "s").await, back);
    assert!(store.remove(&s).await.unwrap());
    assert!(!store.remove(&s).await.unwrap());
    let again = store.reserve(&request("s", 1)).await.unwrap();
    assert_ne!(again.identity.incarnation, created.identity.incarnation);
}

#[tokio::test]
async fn a_locked_file_is_unavailable_in_time_and_nothing_changes() {
    let place = Place::new();
    place.open().await;
    let options = SqliteOptions::new(place.file()).busy_timeout(Duration::from_millis(100));
    let store = SqliteStore::open_with(options.clone()).await.unwrap();
    let holder = place.raw();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    let error = reserve(&store, "s", 5).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Unavailable, Some("s")));
    assert!((Duration::from_millis(90)..Duration::from_secs(4)).contains(&begun.elapsed()));
    assert_eq!(store.list().await.unwrap(), [], "reading goes on, in a WAL");
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(reserve(&store, "s", 5).await.unwrap(), (1, 5));
}

#[tokio::test]
async fn a_dropped_reserve_leaves_a_gap_at_most() {
    let place = Place::new();
    let store = place.open().await;
    let mut last = 0;
    for patience in 0..30 {
        let request = request("s", 10);
        let _ = tokio::time::timeout(Duration::from_micros(patience * 40), store.reserve(&request)).await;
        let (start, len) = reserve(&store, "s", 10).await.unwrap();
        assert!(start > last && (start - 1) % 10 == 0);
        last = start + len - 1;
    }
}

#[tokio::test]
async fn a_file_that_is_replaced_in_use_is_noticed() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "s", 10).await.unwrap();
    let aside = place.dir.path().join("aside.db");
    std::fs::rename(place.file(), &aside).unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap_err().kind(), ErrorKind::StoreViolation, "gone");
    assert!(!place.file().exists(), "and no other was begun in its place");
    std::fs::copy(&aside, place.file()).unwrap();
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "replaced");
    assert!(error.to_string().contains("replaced while it was in use"), "{error}");
    std::fs::rename(&aside, place.file()).unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}

#[tokio::test]
async fn what_cannot_be_opened_says_why_and_what_to_do() {
    let place = Place::new();
    let at = |path: &Path| SqliteOptions::new(path);
    let dir = place.dir.path();
    let error = refused(at(&dir.join("no/ids.db")), ErrorKind::NotFound, "create it first").await;
    assert!(error.to_string().contains("no/ids.db"), "{error}");
    refused(at(dir), ErrorKind::InvalidInput, "directory").await;
    refused(at(&place.file()).mode(Mode::ReadWrite), ErrorKind::NotFound, "mode=rwc").await;
    assert!(!place.file().exists(), "mode=rw creates nothing");
    std::fs::write(dir.join("text"), "not a database, but long enough to be looked at. ".repeat(40)).unwrap();
    let error = refused(at(&dir.join("text")), ErrorKind::StoreViolation, "not an SQLite database").await;
    assert!(error.to_string().contains("text"), "{error}");
    refused(at(&dir.join("text/ids.db")), ErrorKind::InvalidInput, "").await;
    refused(SqliteOptions::new(":memory:"), ErrorKind::InvalidInput, "`memory:`").await;
    place.raw().execute_batch("CREATE TABLE mine (a)").unwrap();
    refused(at(&place.file()).mode(Mode::ReadWrite), ErrorKind::NotFound, "idmill_sequences").await;
}

#[tokio::test]
async fn read_only_looks_and_reserves_nothing() {
    let place = Place::new();
    reserve(&place.open().await, "s", 5).await.unwrap();
    let options = SqliteOptions::new(place.file()).mode(Mode::ReadOnly);
    let store = SqliteStore::open_with(options).await.unwrap();
    assert_eq!(inspect(&store, "s").await.next, Some(6));
    assert_eq!(store.list().await.unwrap().len(), 1);
    for error in [
        reserve(&store, "s", 1).await.unwrap_err(),
        store.remove(&name("s")).await.unwrap_err(),
        store.create(&name("t"), Bounds::of::<u64>()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    assert_eq!(inspect(&place.open().await, "s").await.next, Some(6));
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_without_write_permission_is_denied_but_read() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // With a rollback journal, since reading a WAL can need writing beside it.
    place.raw().execute_batch("CREATE TABLE mine (a)").unwrap();
    reserve(&place.open().await, "s", 5).await.unwrap();
    std::fs::set_permissions(place.file(), std::fs::Permissions::from_mode(0o444)).unwrap();
    let store = place.open().await;
    assert_eq!(inspect(&store, "s").await.next, Some(6));
    let privileged = place.raw().is_readonly("main").is_ok_and(|read_only| !read_only);
    if privileged {
        println!("skipped: this user may write to files without write permission");
        return;
    }
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn rows_of_a_later_version_are_left_alone() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "s", 5).await.unwrap();
    let db = place.raw();
    db.pragma_update(None, "ignore_check_constraints", true).unwrap();
    db.execute("UPDATE idmill_sequences SET format = ?1", params![2]).unwrap();
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn the_rest_of_a_range_is_taken_back_once_and_from_its_own_sequence() {
    let place = Place::new();
    let store = place.open().await;
    let Grant { range, identity, .. } = store.reserve(&request("orders", 10)).await.unwrap();
    let back = GiveBack { name: name("orders"), identity, rest: Range::new(range.start() + 3, 7).unwrap() };
    let later = Identity { epoch: 1, ..identity };
    assert!(!store.give_back(&GiveBack { identity: later, ..back.clone() }).await.unwrap());
    assert!(!store.give_back(&GiveBack { name: name("users"), ..back.clone() }).await.unwrap());
    assert!(store.give_back(&back).await.unwrap());
    assert_eq!(place.open().await.inspect(&name("orders")).await.unwrap().unwrap().next, Some(4));
    assert!(!store.give_back(&back).await.unwrap());
    assert_eq!(reserve(&store, "orders", 5).await.unwrap(), (4, 5));
    assert!(!store.give_back(&back).await.unwrap(), "others have reserved");
}
