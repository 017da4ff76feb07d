//! A table that was last written on another cluster or timeline: the last reserves may be missing.

use std::path::Path;
use std::process::Command;

use futures_util::future::join_all;
use idmill::ErrorKind;
use idmill::store::{Change, GiveBack, Store};
use idmill_kit::raise;
use idmill_postgres::driver::Client;
use idmill_postgres::{Failover, InTransaction, PostgresStore, next_in_sql};
use idmill_testing::engines::Engine;
use idmill_testing::restores::ran;

use crate::restores::{command, promote, replica, stop};
use crate::{client, ids, inspect, name, open, request, reserve, schemes, server, url};

async fn open_with(engine: &Engine, options: &str) -> PostgresStore {
    PostgresStore::open(&url(engine, options)).await.unwrap()
}

/// Copies the current table to another cluster.
fn copied(from: &Engine, to: &Engine) -> Option<()> {
    let file = from.dir().join("dump.sql");
    let tables = ["--clean", "--if-exists", "--table=idmill_sequences", "postgres", "--file"];
    ran(command(from, "pg_dump")?.args(tables).arg(&file));
    restored(to, &file)
}

fn restored(to: &Engine, file: &Path) -> Option<()> {
    let mut psql: Command = command(to, "psql")?;
    ran(psql.args(["--set=ON_ERROR_STOP=1", "--quiet", "postgres", "--file"]).arg(file));
    Some(())
}

/// Two clusters. The second has the first's state after 30 ids were reserved.
async fn dumped_and_restored() -> Option<(Engine, Engine)> {
    let (first, second) = (server().await?, server().await?);
    let store = open(&first).await;
    assert_eq!(ids(reserve(&store, "s", 30).await.unwrap().range), (1, 30));
    copied(&first, &second)?;
    Some((first, second))
}

#[tokio::test]
async fn another_cluster_is_rejected_until_next_id_is_set() {
    let Some((_first, second)) = dumped_and_restored().await else { return };
    let store = open(&second).await;
    let batch = store.reserve_many(&[request("s", 1), request("new", 1)]).await;
    for refused in [reserve(&store, "s", 1).await, batch[0].clone()] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.sequence()), (ErrorKind::Conflict, Some("s")), "{error}");
        for words in ["last written on cluster ", ", not on cluster ", "--next ID", "failover=allow"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    assert_eq!(ids(batch[1].clone().unwrap().range), (1, 1), "a new sequence has no other history");
    // A change that does not set the next id does not resolve the conflict.
    store.set(&name("s"), Change::new().max(1_000)).await.unwrap();
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Conflict);
    // `raise`, which `import` uses, does not resolve the conflict either.
    let raised = raise(&store, &inspect(&store, "s").await, 32).await.unwrap();
    assert_eq!(raised.next, Some(32));
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Conflict);
    store.set(&name("s"), Change::new().next(500)).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (500, 502));
}

#[tokio::test]
async fn allowed_failover_to_another_cluster_holds_for_all() {
    let Some((_first, second)) = dumped_and_restored().await else { return };
    let store = open_with(&second, "&failover=allow").await;
    assert_eq!(ids(reserve(&store, "s", 5).await.unwrap().range), (31, 35));
    assert_eq!(ids(reserve(&open(&second).await, "s", 5).await.unwrap().range), (36, 40));
}

/// All processes detect the failover at the same time.
#[tokio::test]
async fn concurrent_failovers_skip_ids_only_once() {
    let Some((first, second)) = dumped_and_restored().await else { return };
    for round in 0..5_u64 {
        let name = format!("s{round}");
        assert_eq!(ids(reserve(&open(&first).await, &name, 30).await.unwrap().range), (1, 30));
    }
    copied(&first, &second).unwrap();
    for round in 0..5_u64 {
        let name = format!("s{round}");
        let mut processes = Vec::new();
        for _ in 0..4 {
            processes.push(open_with(&second, "&failover=skip:1000").await);
        }
        let drawn = join_all(processes.iter().map(|store| reserve(store, &name, 1))).await;
        let mut drawn: Vec<_> = drawn.into_iter().map(|one| one.unwrap().range.start()).collect();
        drawn.sort_unstable();
        assert_eq!(drawn, (1_031..1_035).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn nothing_is_given_back_over_another_history() {
    let Some((first, second)) = dumped_and_restored().await else { return };
    let info = inspect(&open(&first).await, "s").await;
    let rest = idmill::IdRange::new(21, 10).unwrap();
    let back = GiveBack::new(name("s"), info.identity, rest);
    assert!(!open(&second).await.give_back(&back).await.unwrap());
    assert!(!open_with(&second, "&failover=allow").await.give_back(&back).await.unwrap());
    assert!(open(&first).await.give_back(&back).await.unwrap());
}

#[tokio::test]
async fn a_promoted_standby_is_another_timeline_at_once() {
    let Some(primary) = server().await else { return };
    assert_eq!(ids(reserve(&open(&primary).await, "s", 30).await.unwrap().range), (1, 30));
    let Some(replica) = replica(&primary).await else { return };
    reserve(&open(&primary).await, "s", 50).await.unwrap();
    stop(&primary).await;
    // The standby can be inspected before it is promoted.
    let look = schemes().open(&url(&replica, "&mode=ro")).await.unwrap();
    assert_eq!(inspect(&*look, "s").await.next, Some(31));
    let standby = reserve(&open(&replica).await, "s", 1).await.unwrap_err();
    assert_eq!((standby.kind(), standby.refuses_waiters()), (ErrorKind::Unavailable, true), "{standby}");
    assert!(standby.to_string().contains("the server is a standby"), "{standby}");
    promote(&replica).await;
    let error = reserve(&open(&replica).await, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains(", timeline 1, not on cluster "), "{error}");
    assert!(error.to_string().contains(", timeline 2; "), "{error}");
    let store = open_with(&replica, "&failover=skip:100").await;
    assert_eq!(ids(reserve(&store, "s", 5).await.unwrap().range), (131, 135));
}

/// A new history that is adopted commits or rolls back with the transaction.
#[tokio::test]
async fn history_adopted_in_a_transaction_rolls_back_with_it() {
    let Some((_first, second)) = dumped_and_restored().await else { return };
    let draws = |failover| InTransaction::<i64>::new("s").unwrap().failover(failover);
    let mut user = client(&second).await;
    let tx = user.transaction().await.unwrap();
    let error = InTransaction::<i64>::new("s").unwrap().next(&tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let published = next_in_sql("public", "idmill_sequences").unwrap();
    assert!(tx.query_opt(&published, &[&"s", &1_i64]).await.unwrap().is_none());
    // The transaction continues.
    assert_eq!(draws(Failover::Skip(100)).next(&tx).await.unwrap(), 131);
    assert_eq!(InTransaction::<i64>::new("s").unwrap().next(&tx).await.unwrap(), 132);
    tx.rollback().await.unwrap();
    let tx = user.transaction().await.unwrap();
    assert_eq!(draws(Failover::Skip(100)).next(&tx).await.unwrap(), 131);
    tx.commit().await.unwrap();
    let tx = user.transaction().await.unwrap();
    assert_eq!(tx.query_one(&published, &[&"s", &2_i64]).await.unwrap().get::<_, i64>(0), 132);
    tx.commit().await.unwrap();
    assert_eq!(reserve(&open(&second).await, "s", 1).await.unwrap().range.start(), 134);
}

async fn denied(admin: &Client) {
    let sql = "CREATE ROLE app LOGIN; GRANT ALL ON idmill_sequences TO app; \
               REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
    admin.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn unprivileged_role_draws_unless_a_check_is_requested() {
    let Some((_first, second)) = dumped_and_restored().await else { return };
    denied(&client(&second).await).await;
    let app = |options| url(&second, options).replace("postgres@", "app@");
    let store = PostgresStore::open(&app("")).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 5).await.unwrap().range), (31, 35));
    for asked in ["&failover=refuse", "&failover=skip:9"] {
        let error = PostgresStore::open(&app(asked)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("GRANT EXECUTE"), "{error}");
    }
    PostgresStore::open(&app("&failover=allow")).await.unwrap();
    // Roles with the privilege are still refused, until the other role sets the next id.
    assert_eq!(reserve(&open(&second).await, "s", 1).await.unwrap_err().kind(), ErrorKind::Conflict);
    store.set(&name("s"), Change::new().next(500)).await.unwrap();
    assert_eq!(ids(reserve(&open(&second).await, "s", 1).await.unwrap().range), (500, 500));
}

#[tokio::test]
async fn table_without_history_is_rejected_with_its_statement() {
    let Some(engine) = server().await else { return };
    reserve(&open(&engine).await, "s", 30).await.unwrap();
    let admin = client(&engine).await;
    admin.batch_execute("ALTER TABLE idmill_sequences DROP COLUMN history").await.unwrap();
    let error = PostgresStore::open(&url(&engine, "")).await.unwrap_err();
    let (_, statement) =
        error.to_string().split_once("run ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    admin.batch_execute(&statement).await.unwrap();
    assert_eq!(ids(reserve(&open(&engine).await, "s", 1).await.unwrap().range), (31, 31));
}
