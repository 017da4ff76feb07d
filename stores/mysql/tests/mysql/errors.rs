//! Errors of a real server, and the resulting errors of the store.

use std::time::Duration;

use idmill::store::{Page, Pages};
use idmill_mysql::InTransaction;
use idmill_mysql::driver::{Transaction, TxOpts};

use super::*;

/// Takes an id and keeps the sequence locked.
async fn holder<'a>(connection: &'a mut Conn, table: &str, text: &str) -> Transaction<'a> {
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    draw(&mut tx, table, text).await.unwrap();
    tx
}

async fn draw(tx: &mut Transaction<'_>, table: &str, text: &str) -> Result<u64> {
    InTransaction::new(text).unwrap().table(table).unwrap().next(tx).await
}

/// The query for the connections that update this table.
fn updating(table: &str) -> String {
    format!("SELECT id FROM information_schema.processlist WHERE info LIKE 'UPDATE `ids`.`{table}`%'")
}

/// Returns the connection that waits for this table's lock, once there is one.
async fn waiting(root: &mut Conn, table: &str) -> u64 {
    for _ in 0..1000 {
        if let Some(id) = root.query_first::<u64, _>(updating(table)).await.unwrap() {
            return id;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no connection waits for the lock of {table}");
}

#[tokio::test]
async fn a_lock_that_is_not_to_be_had_leaves_nothing_behind() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    let store = MysqlStore::open(&url(address, "locks", "&timeout=10s")).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let mut root = root(address).await;
    let tx = holder(&mut root, "locks", "s").await;
    assert_eq!(refused(&store, "s", "commit that transaction sooner").await, ErrorKind::Unavailable);
    tx.rollback().await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}

/// A statement may have been killed while its commit waited, so the outcome is unknown.
#[tokio::test]
async fn killed_statement_is_an_unknown_outcome() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    let store = open(address, "kills").await;
    reserve(&store, "s", 10).await.unwrap();
    for kill in ["KILL QUERY", "KILL"] {
        let (mut lock, mut root) = (root(address).await, root(address).await);
        let tx = holder(&mut lock, "kills", "s").await;
        let ten = request("s", 10);
        let (killed, outcome) = tokio::join!(
            async {
                let id = waiting(&mut root, "kills").await;
                root.query_drop(format!("{kill} {id}")).await
            },
            store.reserve(&ten),
        );
        killed.unwrap();
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{kill}: {error}");
        assert!(error.to_string().contains("may have been applied"), "{error}");
        tx.rollback().await.unwrap();
        // The server lists a killed update until after its reply. The next round would otherwise kill that
        // connection while it is idle.
        until(&mut root, &updating("kills").replace("id FROM", "COUNT(*) FROM"), 0).await;
    }
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}

#[tokio::test]
async fn a_deadlock_ends_one_transaction_and_nothing_is_twice() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    let store = open(address, "deadlocks").await;
    reserve(&store, "a", 1).await.unwrap();
    reserve(&store, "b", 1).await.unwrap();
    let (mut one, mut two) = (root(address).await, root(address).await);
    let mut first = holder(&mut one, "deadlocks", "a").await;
    let mut second = holder(&mut two, "deadlocks", "b").await;
    let (ours, theirs) =
        tokio::join!(draw(&mut first, "deadlocks", "b"), draw(&mut second, "deadlocks", "a"));
    let errors: Vec<_> = [&ours, &theirs].into_iter().filter_map(|drawn| drawn.as_ref().err()).collect();
    assert!(errors.len() == 1 && errors[0].kind() == ErrorKind::Unavailable, "{ours:?} {theirs:?}");
    assert!(errors[0].to_string().contains("begin it again"), "{}", errors[0]);
    assert_eq!(ours.or(theirs).unwrap(), 2);
    first.rollback().await.unwrap();
    second.rollback().await.unwrap();
    assert_eq!(inspect(&store, "a").await.next, Some(2));
}

async fn cannot_open(url: &str, kind: ErrorKind, hint: &str) {
    let error = MysqlStore::open(url).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{url}: {error}");
    assert!(error.to_string().contains(hint), "{url}: {error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn missing_privileges_are_denied_with_the_remedy() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    let store = open(address, "rights").await;
    reserve(&store, "s", 10).await.unwrap();
    let mut root = root(address).await;
    let rights = [
        "CREATE USER looks@'127.0.0.1' IDENTIFIED BY 'hunter2'",
        "GRANT SELECT ON ids.rights TO looks@'127.0.0.1'",
        "CREATE USER writes@'127.0.0.1' IDENTIFIED BY 'hunter2'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ids.rights TO writes@'127.0.0.1'",
    ];
    run(&mut root, &rights).await;
    let by = |user: &str, table: &str, more: &str| {
        format!("mysql://{user}:hunter2@{address}/ids?table={table}{more}")
    };

    // Inspecting needs only SELECT. Writes are refused by the server, or earlier by the mode.
    let looks = MysqlStore::open(&by("looks", "rights", "")).await.unwrap();
    assert_eq!(inspect(&looks, "s").await.next, Some(11));
    assert_eq!(refused(&looks, "s", "grant the user").await, ErrorKind::Denied);
    let looks = MysqlStore::open(&by("looks", "rights", "&mode=ro")).await.unwrap();
    assert_eq!(looks.list_all().await.unwrap().len(), 1);
    assert_eq!(refused(&looks, "s", "mode=ro").await, ErrorKind::Denied);
    assert_eq!(looks.remove(&name("s"), None).await.unwrap_err().kind(), ErrorKind::Denied);

    let writes = MysqlStore::open(&by("writes", "rights", "")).await.unwrap();
    assert_eq!(reserve(&writes, "s", 10).await.unwrap(), (11, 10));
    run(&mut root, &["CREATE USER single@'127.0.0.1' IDENTIFIED BY 'hunter2' WITH MAX_USER_CONNECTIONS 1"])
        .await;
    let single =
        MysqlOptions::parse(&format!("mysql://single:hunter2@{address}/information_schema")).unwrap();
    let single = single.pool().unwrap().get_conn().await.unwrap();
    cannot_open(&by("single", "rights", ""), ErrorKind::Unavailable, "fewer connections").await;
    drop(single);

    cannot_open(&by("looks", "others", ""), ErrorKind::Denied, "CREATE for `mode=rwc`").await;
    cannot_open(&by("nobody", "rights", ""), ErrorKind::Denied, "check the user and its password").await;
    let elsewhere = format!("mysql://root@{address}/nowhere");
    cannot_open(&elsewhere, ErrorKind::NotFound, "create it").await;
    cannot_open(&url(address, "missing", "&mode=rw"), ErrorKind::NotFound, "restore it").await;
    cannot_open(&url(address, "missing", "&mode=ro"), ErrorKind::NotFound, "restore it").await;
    cannot_open(&url(address, "rights", "&tls=true"), ErrorKind::Unsupported, "tls=false").await;
    assert_eq!(inspect(&store, "s").await.next, Some(21));
}

#[tokio::test]
async fn foreign_changes_to_the_table_are_reported() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    let store = open(address, "meddled").await;
    reserve(&store, "s", 10).await.unwrap();
    let mut root = root(address).await;
    run(&mut root, &["CREATE TRIGGER no BEFORE UPDATE ON meddled FOR EACH ROW SIGNAL SQLSTATE '45000'"])
        .await;
    assert_eq!(refused(&store, "s", "1644").await, ErrorKind::Conflict);
    run(&mut root, &["DROP TRIGGER no"]).await;
    // One trigger reverts the update; others change the id that the server reports, so the range becomes a
    // gap.
    run(&mut root, &["CREATE TRIGGER no BEFORE UPDATE ON meddled FOR EACH ROW SET NEW.next = OLD.next"])
        .await;
    assert_eq!(refused(&store, "s", "trigger").await, ErrorKind::Unavailable);
    run(&mut root, &["DROP TRIGGER no", "CREATE TABLE audit (id INT AUTO_INCREMENT PRIMARY KEY, said INT)"])
        .await;
    for (body, next) in [
        ("INSERT INTO audit VALUES (NULL, 1)", 12),
        ("INSERT INTO audit (said) VALUES (LAST_INSERT_ID(5))", 13),
    ] {
        let audit = format!("CREATE TRIGGER audited AFTER UPDATE ON meddled FOR EACH ROW {body}");
        run(&mut root, &[&audit]).await;
        assert_eq!(refused(&store, "s", "check triggers").await, ErrorKind::StoreViolation);
        run(&mut root, &["DROP TRIGGER audited"]).await;
        assert_eq!(inspect(&store, "s").await.next, Some(next));
    }

    // A missing id must not be taken for the id 0, which the driver returns in its place.
    store.create(&name("zero"), bounds(0, 1000)).await.unwrap();
    let audit =
        "CREATE TRIGGER audited AFTER UPDATE ON meddled FOR EACH ROW INSERT INTO audit VALUES (NULL, 1)";
    run(&mut root, &[audit]).await;
    assert_eq!(reserve(&store, "zero", 10).await.unwrap(), (0, 10));
    assert_eq!(refused(&store, "zero", "check triggers").await, ErrorKind::StoreViolation);
    run(&mut root, &["DROP TRIGGER audited"]).await;

    for (change, kind, hint) in [
        ("SET SESSION check_constraint_checks = 0", None, ""),
        ("UPDATE meddled SET next = 7, start = 10", Some(ErrorKind::StoreViolation), "next 7 outside"),
        ("UPDATE meddled SET start = 1, incarnation = 0", Some(ErrorKind::StoreViolation), "incarnation 0"),
        ("UPDATE meddled SET incarnation = 1, format = 2", Some(ErrorKind::Unsupported), "another format"),
        ("ALTER TABLE meddled RENAME COLUMN next TO follows", Some(ErrorKind::Conflict), "table=NAME"),
        ("DROP TABLE meddled", Some(ErrorKind::NotFound), "restore it"),
    ] {
        run(&mut root, &[change]).await;
        if let Some(kind) = kind {
            assert_eq!(refused(&store, "s", hint).await, kind, "{change}");
        }
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hides_no_other() {
    let Some(engine) = server().await else { return };
    let store = open(engine.address(), "hidden").await;
    for sequence in ["a", "b", "c"] {
        reserve(&store, sequence, 10).await.unwrap();
    }
    let later = [
        "SET check_constraint_checks = OFF",
        "UPDATE ids.hidden SET format = 2 WHERE name = 'b'",
        "UPDATE ids.hidden SET name = x'62ff' WHERE name = 'c'",
    ];
    run(&mut root(engine.address()).await, &later).await;
    reserve(&store, "d", 10).await.unwrap();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut pages = Pages::new(&store, Page::default().limit(1));
    while let Some(page) = pages.next().await.unwrap() {
        good.extend(page.sequences.into_iter().map(|info| info.name.to_string()));
        bad.extend(page.unreadable.into_iter().map(|row| (row.name, row.error.kind())));
    }
    assert_eq!(good, ["a", "d"]);
    let kinds =
        [("b".to_owned(), ErrorKind::Unsupported), ("b\u{fffd}".to_owned(), ErrorKind::StoreViolation)];
    assert_eq!(bad, kinds);
    assert_eq!(store.list(&Page::of("b")).await.unwrap().unreadable.len(), 2);
}
