//! A table that was last written by another server: the last reserves may be missing.

use futures_util::future::join_all;
use idmill::IdRange;
use idmill::store::{Change, GiveBack};
use idmill_kit::Target as _;
use idmill_mysql::driver::{PoolConstraints, PoolOpts, TxOpts};
use idmill_mysql::{Failover, InTransaction};
use idmill_testing::{eventually, holds};

use super::*;

/// A server with this id, which logs changes for replicas in this format.
async fn numbered(number: u32, format: &str) -> Option<Engine> {
    let engine = Engine::down(ENGINE)?;
    let options =
        format!("[mysqld]\nserver_id = {number}\nlog_bin = log\nbinlog_format = {format}\nsync_binlog = 1\n");
    std::fs::write(engine.dir().join("extra.cnf"), options).unwrap();
    engine.restart().await;
    Some(engine)
}

async fn open_with(engine: &Engine, options: &str) -> MysqlStore {
    MysqlStore::open(&url(engine.address(), "t", options)).await.unwrap()
}

/// A replica with the current state, which receives no later changes.
async fn replica(primary: &Engine) -> Option<Engine> {
    let replica = numbered(2, "MIXED").await?;
    let (mut first, mut second) = (root(primary.address()).await, root(replica.address()).await);
    let port = primary.address().port();
    let follow = format!(
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', MASTER_LOG_FILE = 'log.000001', \
         MASTER_LOG_POS = 4"
    );
    run(&mut second, &["DROP DATABASE ids", &follow, "START SLAVE"]).await;
    run(&mut first, &["CREATE DATABASE caught_up"]).await;
    let there = "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'caught_up'";
    eventually("the replica has caught up", async || {
        holds(one::<u64>(&mut second, there).await > 0, "no database caught_up")
    })
    .await;
    run(&mut second, &["STOP SLAVE"]).await;
    Some(replica)
}

/// A primary that has reserved 80 ids of each sequence, and a replica that has received 30.
async fn promoted(names: &[&str]) -> Option<(Engine, Engine)> {
    let primary = numbered(1, "MIXED").await?;
    // Recreate the database, so that its creation is in the log.
    run(&mut root(primary.address()).await, &["DROP DATABASE ids", "CREATE DATABASE ids"]).await;
    let store = open_with(&primary, "").await;
    for name in names {
        assert_eq!(reserve(&store, name, 20).await.unwrap(), (1, 20));
        assert_eq!(reserve(&store, name, 10).await.unwrap(), (21, 10));
    }
    let replica = replica(&primary).await?;
    for name in names {
        assert_eq!(reserve(&store, name, 50).await.unwrap(), (31, 50));
    }
    Some((primary, replica))
}

#[tokio::test]
async fn promoted_replica_is_rejected_until_next_id_is_set() {
    let Some((_primary, replica)) = promoted(&["s", "same"]).await else { return };
    let store = open_with(&replica, "").await;
    for sequence in ["s", "same"] {
        assert_eq!(inspect(&store, sequence).await.next, Some(31), "the replica follows the log");
        let hint = "last written on server 1, not on server 2; run ";
        assert_eq!(refused(&store, sequence, hint).await, ErrorKind::Conflict);
    }
    // A change that does not set the next id does not resolve the conflict.
    store.set(&name("s"), Change::new().max(1_000)).await.unwrap();
    assert_eq!(refused(&store, "s", "--next ID").await, ErrorKind::Conflict);
    store.set(&name("s"), Change::new().next(500)).await.unwrap();
    assert_eq!(reserve(&store, "s", 3).await.unwrap(), (500, 3));
    // Setting the next id resolves the conflict even if the id is already correct.
    store.set(&name("same"), Change::new().next(31)).await.unwrap();
    assert_eq!(reserve(&store, "same", 3).await.unwrap(), (31, 3));
}

#[tokio::test]
async fn promoted_replica_continues_if_allowed_and_skips_once() {
    let names = ["s0", "s1", "s2", "s3", "s4", "s"];
    let Some((primary, replica)) = promoted(&names).await else { return };
    let store = open_with(&replica, "&failover=allow").await;
    assert_eq!(reserve(&store, "s", 5).await.unwrap(), (31, 5));
    assert_eq!(reserve(&open_with(&replica, "").await, "s", 5).await.unwrap(), (36, 5));
    for sequence in &names[..5] {
        let mut processes = Vec::new();
        for _ in 0..4 {
            processes.push(open_with(&replica, "&failover=skip:1000").await);
        }
        let drawn = join_all(processes.iter().map(|store| reserve(store, sequence, 1))).await;
        let mut drawn: Vec<_> = drawn.into_iter().map(|one| one.unwrap().0).collect();
        drawn.sort_unstable();
        assert_eq!(drawn, [1_031, 1_032, 1_033, 1_034]);
    }
    // The former primary continues with its own ids.
    assert_eq!(reserve(&open_with(&primary, "").await, "s", 5).await.unwrap(), (81, 5));
}

#[tokio::test]
async fn the_last_ids_are_refused_too_and_nothing_is_given_back() {
    let Some((primary, replica)) = promoted(&["s"]).await else { return };
    let (first, second) = (open_with(&primary, "").await, open_with(&replica, "").await);
    second.set(&name("s"), Change::new().max(35)).await.unwrap();
    assert_eq!(refused(&second, "s", "server 1, not on server 2").await, ErrorKind::Conflict);
    let identity = inspect(&first, "s").await.identity;
    let back = |from, count| GiveBack::new(name("s"), identity, IdRange::new(from, count).unwrap());
    assert!(!second.give_back(&back(21, 10)).await.unwrap());
    assert!(first.give_back(&back(71, 10)).await.unwrap());
    let skips = open_with(&replica, "&failover=skip:9").await;
    assert_eq!(refused(&skips, "s", "exhausted").await, ErrorKind::Exhausted);
}

/// A new history that is adopted commits or rolls back with the transaction.
#[tokio::test]
async fn history_adopted_in_a_transaction_rolls_back_with_it() {
    let Some((_primary, replica)) = promoted(&["s"]).await else { return };
    let draws = || InTransaction::<i64>::new("s").unwrap().table("t").unwrap();
    let pool = pool(replica.address(), |options| options);
    let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
    let error = draws().next(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    tx.rollback().await.unwrap();
    for committed in [false, true] {
        let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
        assert_eq!(draws().failover(Failover::Skip(100)).next(&mut tx).await.unwrap(), 131);
        assert_eq!(draws().next(&mut tx).await.unwrap(), 132);
        if committed { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    assert_eq!(reserve(&open_with(&replica, "").await, "s", 1).await.unwrap(), (133, 1));
}

/// A user with `SUPER` writes in spite of `read_only`, which fences a former primary.
#[tokio::test]
async fn fenced_primary_grants_no_ids_to_a_superuser() {
    let Some((primary, replica)) = promoted(&["s"]).await else { return };
    let allow = "&failover=allow";
    let pooled = pool(primary.address(), |options| options);
    let stores = [
        open_with(&primary, allow).await,
        MysqlStore::from_pool(&pooled, MysqlOptions::default().table("t")).await.unwrap(),
    ];
    for (store, first) in stores.iter().zip([81, 82]) {
        assert_eq!(reserve(store, "s", 1).await.unwrap(), (first, 1));
    }
    let identity = inspect(&stores[0], "s").await.identity;
    let mut root = root(primary.address()).await;
    run(&mut root, &["SET GLOBAL read_only = 1"]).await;
    assert_eq!(reserve(&open_with(&replica, allow).await, "s", 5).await.unwrap(), (31, 5));
    for store in &stores {
        // A sequence that exists, and one that the reserve would create.
        for sequence in ["s", "new"] {
            assert_eq!(refused(store, sequence, "`read_only` is set").await, ErrorKind::Unavailable);
        }
        let back = GiveBack::new(name("s"), identity, IdRange::new(82, 1).unwrap());
        for error in [
            store.give_back(&back).await.unwrap_err(),
            store.set(&name("s"), Change::new().next(500)).await.unwrap_err(),
            store.create(&name("new"), bounds(1, 9)).await.unwrap_err(),
            store.remove(&name("s"), None).await.unwrap_err(),
            store.swap_record(&name("s"), None, "record").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
    let error = MysqlStore::open(&url(primary.address(), "other", allow)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "a table is not created: {error}");
    for failover in [Failover::Refuse, Failover::Allow] {
        let mut tx = pooled.start_transaction(TxOpts::default()).await.unwrap();
        let draws = InTransaction::<i64>::new("s").unwrap().table("t").unwrap().failover(failover);
        assert_eq!(draws.next(&mut tx).await.unwrap_err().kind(), ErrorKind::Unavailable);
        tx.rollback().await.unwrap();
    }
    run(&mut root, &["SET GLOBAL read_only = 0"]).await;
    assert_eq!(reserve(&stores[0], "s", 1).await.unwrap(), (83, 1));
}

/// Replicas must not evaluate the condition of a logged statement, so a query comes first. The connection
/// that led to a fenced server is closed.
#[tokio::test]
async fn fence_is_found_with_statement_logging_too() {
    let Some(engine) = numbered(1, "STATEMENT").await else { return };
    let single = PoolOpts::default().with_constraints(PoolConstraints::new(1, 1).unwrap());
    let pool = pool(engine.address(), |options| options.pool_opts(single));
    let store = MysqlStore::from_pool(&pool, MysqlOptions::default().table("t")).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let before = pool.get_conn().await.unwrap().id();
    run(&mut root(engine.address()).await, &["SET GLOBAL read_only = 1"]).await;
    assert_eq!(refused(&store, "s", "`read_only` is set").await, ErrorKind::Unavailable);
    assert_ne!(pool.get_conn().await.unwrap().id(), before);
}

/// A replica that executes the same statement has another server id: the condition fails, and the replica's
/// row stays unchanged.
#[tokio::test]
async fn statement_logging_disables_the_failover_check() {
    let Some(engine) = numbered(1, "STATEMENT").await else { return };
    let store = open_with(&engine, "").await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let mut root = root(engine.address()).await;
    assert_eq!(one::<Option<String>>(&mut root, "SELECT history FROM ids.t").await, None);
    for options in ["&failover=refuse", "&failover=skip:1"] {
        let error = MysqlStore::open(&url(engine.address(), "t", options)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("set it to MIXED or ROW"), "{error}");
    }
    open_with(&engine, "&failover=allow").await;
}

#[tokio::test]
async fn table_without_history_is_rejected_with_its_statement() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    assert_eq!(reserve(&open(address, "before").await, "s", 30).await.unwrap(), (1, 30));
    let mut root = root(address).await;
    run(&mut root, &["ALTER TABLE before DROP COLUMN history".replace("before", "`before`").as_str()]).await;
    let error = MysqlStore::open(&url(address, "before", "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = error.to_string();
    let (_, statement) = error.split_once("; run ").unwrap();
    run(&mut root, &[statement]).await;
    assert_eq!(reserve(&open(address, "before").await, "s", 1).await.unwrap(), (31, 1));
}

/// Simulates a process whose connections lead to another server, as with a DNS name or a proxy. The process
/// has cached the sequence, and does not read first.
#[tokio::test]
async fn running_process_is_rejected_after_a_failover() {
    let Some(engine) = Engine::start(ENGINE).await else { return };
    let store = open_with(&engine, "").await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let mut root = root(engine.address()).await;
    run(&mut root, &["SET GLOBAL server_id = 7"]).await;
    let others =
        "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'";
    for id in root.query::<u64, _>(others).await.unwrap() {
        let _ = root.query_drop(format!("KILL {id}")).await;
    }
    until(&mut root, &others.replace("id FROM", "COUNT(*) FROM"), 0).await;
    assert_eq!(refused(&store, "s", "server 1, not on server 7").await, ErrorKind::Conflict);
}

#[tokio::test]
async fn rejected_reserves_are_found_without_a_write() {
    let Some(engine) = server().await else { return };
    let store = open(engine.address(), "told").await;
    for name in ["here", "moved"] {
        reserve(&store, name, 5).await.unwrap();
    }
    let moved = "UPDATE ids.told SET history = 'server 4711' WHERE name = 'moved'";
    run(&mut root(engine.address()).await, &[moved]).await;
    let refused = async |options| {
        let options = MysqlOptions::parse(&url(engine.address(), "told", options)).unwrap();
        options.refused().await.unwrap()
    };
    let found = refused("").await;
    let [(name, error)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((name.as_str(), error.kind()), ("moved", ErrorKind::Conflict));
    assert_eq!(
        error.to_string(),
        reserve(&store, "moved", 5).await.unwrap_err().to_string().replace("reserve ", "")
    );
    assert!(refused("&failover=skip:5").await.is_empty());
}
