//! Files: locked, replaced, linked, read-only, or not a database.

use std::path::Path;
use std::time::{Duration, Instant};

use idmill::ErrorKind;
use idmill::store::{Bounds, Store};
use idmill_sqlite::{Mode, SqliteOptions, SqliteStore};

use crate::{Place, inspect, name, refused, reserve};

#[tokio::test]
async fn locked_file_times_out_as_unavailable_without_change() {
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
    assert_eq!(store.list_all().await.unwrap(), [], "a WAL allows reads during a write");
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(reserve(&store, "s", 5).await.unwrap(), (1, 5));
}

#[tokio::test]
async fn a_file_that_is_replaced_in_use_is_noticed() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "s", 10).await.unwrap();
    let aside = place.dir.path().join("aside.db");
    std::fs::rename(place.file(), &aside).unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap_err().kind(), ErrorKind::StoreViolation, "gone");
    assert!(!place.file().exists(), "no new file was created");
    std::fs::copy(&aside, place.file()).unwrap();
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "replaced");
    assert!(error.to_string().contains("replaced while in use"), "{error}");
    std::fs::rename(&aside, place.file()).unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}

/// Other processes would find another log, or none, and miss the reserves of this process.
#[cfg(unix)]
#[tokio::test]
async fn a_log_that_is_removed_in_use_is_noticed() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "s", 10).await.unwrap();
    for suffix in ["-wal", "-shm"] {
        let beside = place.dir.path().join(format!("ids.db{suffix}"));
        let aside = place.dir.path().join(format!("aside{suffix}"));
        std::fs::rename(&beside, &aside).unwrap();
        for put in [false, true] {
            if put {
                std::fs::copy(&aside, &beside).unwrap();
            }
            let error = reserve(&store, "s", 10).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreViolation, "{suffix} {put}: {error}");
            assert!(
                error.to_string().contains(&format!("ids.db{suffix} was removed or replaced")),
                "{error}"
            );
            assert_eq!(store.list_all().await.unwrap_err().kind(), ErrorKind::StoreViolation);
        }
        std::fs::rename(&aside, &beside).unwrap();
    }
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10), "it was refused before it was reserved");
}

/// A process that opens the database without the log would reserve the ids in the log again.
#[cfg(unix)]
#[tokio::test]
async fn database_in_use_without_its_log_is_rejected() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "s", 10).await.unwrap();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(place.dir.path().join(format!("ids.db{suffix}"))).unwrap();
    }
    let options = SqliteOptions::new(place.file()).busy_timeout(Duration::from_millis(50));
    refused(options.clone(), ErrorKind::Unavailable, "stop all its users").await;
    drop(store);
    SqliteStore::open_with(options).await.unwrap();
}

/// Each open probes whether other connections have the file open, and blocks them only briefly.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_opens_of_an_idle_database_all_succeed() {
    let place = Place::new();
    drop(place.open().await);
    for _ in 0..50 {
        let opening: Vec<_> = (0..4).map(|_| tokio::spawn(SqliteStore::open(place.file()))).collect();
        let mut open = Vec::new();
        for one in opening {
            open.push(one.await.unwrap().unwrap());
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_with_two_names_is_refused_under_both() {
    let place = Place::new();
    let store = place.open().await;
    reserve(&store, "s", 10).await.unwrap();
    let other = place.dir.path().join("other.db");
    std::fs::hard_link(place.file(), &other).unwrap();
    for file in [place.file(), other.clone()] {
        refused(SqliteOptions::new(file), ErrorKind::Conflict, "hard links").await;
    }
    assert_eq!(reserve(&store, "s", 10).await.unwrap_err().kind(), ErrorKind::Conflict);
    std::fs::remove_file(&other).unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
    // A symbolic link leads to the same log.
    std::os::unix::fs::symlink(place.file(), &other).unwrap();
    assert_eq!(reserve(&SqliteStore::open(&other).await.unwrap(), "s", 10).await.unwrap(), (21, 10));
}

#[tokio::test]
async fn failed_open_reports_cause_and_remedy() {
    let place = Place::new();
    let at = |path: &Path| SqliteOptions::new(path);
    let dir = place.dir.path();
    let error = refused(at(&dir.join("no/ids.db")), ErrorKind::NotFound, "create it first").await;
    assert!(error.to_string().contains("no/ids.db"), "{error}");
    refused(at(dir), ErrorKind::InvalidInput, "directory").await;
    refused(at(&place.file()).mode(Mode::ReadWrite), ErrorKind::NotFound, "restore the file").await;
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
    assert_eq!(store.list_all().await.unwrap().len(), 1);
    for error in [
        reserve(&store, "s", 1).await.unwrap_err(),
        store.remove(&name("s"), None).await.unwrap_err(),
        store.create(&name("t"), Bounds::of::<u64>()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    assert_eq!(inspect(&place.open().await, "s").await.next, Some(6));
}

/// Runs a test again in a process that may not write to files without write permission, as root may.
#[cfg(unix)]
fn without_privilege(test: &str) {
    const CHILD: &str = "IDMILL_TEST_WITHOUT_PRIVILEGE";
    let mut command = std::process::Command::new("setpriv");
    command.arg("--bounding-set=-dac_override").arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output();
    let Some(output) = output.ok().filter(|_| std::env::var_os(CHILD).is_none()) else {
        return idmill_testing::skip("this user may write to files without write permission");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_without_write_permission_is_denied_but_read() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // Uses a rollback journal, since reading a WAL can require writing next to it.
    place.raw().execute_batch("CREATE TABLE mine (a)").unwrap();
    reserve(&place.open().await, "s", 5).await.unwrap();
    std::fs::set_permissions(place.file(), std::fs::Permissions::from_mode(0o444)).unwrap();
    let store = place.open().await;
    assert_eq!(inspect(&store, "s").await.next, Some(6));
    let privileged = place.raw().is_readonly("main").is_ok_and(|read_only| !read_only);
    if privileged {
        return without_privilege("files::a_file_without_write_permission_is_denied_but_read");
    }
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Denied);
}
