//! Restored backups of a server, restored or emptied tables, another database, a replica promoted with
//! `failover=allow`: without a guard ids are duplicated, with a guard they are not.

use std::process::Command;

use idmill_testing::restores::{Drawn, ran};

use super::*;

/// The ids drawn from a table of a server.
fn drawn(engine: &Engine, table: &str) -> Drawn {
    Drawn::from(schemes(), url(engine.address(), table, "&timeout=20s"))
}

#[tokio::test]
async fn a_data_directory_that_is_put_back() {
    let Some(engine) = Engine::start(ENGINE).await else { return };
    drawn(&engine, "t").survives_a_restore(&engine, &engine.dir().join("data")).await;
}

#[tokio::test]
async fn restored_rows_are_detected() {
    let Some(engine) = server().await else { return };
    let mut ids = drawn(&engine, "rows_back");
    ids.draw(30).await;
    let mut root = root(engine.address()).await;
    run(&mut root, &["CREATE TABLE rows_kept AS SELECT * FROM rows_back"]).await;
    ids.draw(50).await;
    run(&mut root, &["DELETE FROM rows_back", "INSERT INTO rows_back SELECT * FROM rows_kept"]).await;
    ids.went_back().await;
}

#[tokio::test]
async fn a_table_that_is_dumped_and_restored() {
    let Some(engine) = server().await else { return };
    let (Some(mut dump), Some(mut restore)) = (command(&engine, "mariadb-dump"), command(&engine, "mariadb"))
    else {
        return;
    };
    let mut ids = drawn(&engine, "dumped");
    ids.draw(30).await;
    let file = engine.dir().join("dump.sql");
    ran(dump.args(["--single-transaction", "ids", "dumped", "--result-file"]).arg(&file));
    ids.draw(50).await;
    let sql = std::fs::read_to_string(&file).unwrap();
    ran(restore.args(["ids", "--execute", &sql]));
    ids.went_back().await;
}

/// A MariaDB command for the server; `None` if it is not installed.
fn command(engine: &Engine, program: &str) -> Option<Command> {
    if Command::new(program).arg("--version").output().is_err() {
        idmill_testing::skip(&format!("there is no {program}"));
        return None;
    }
    let mut command = Command::new(program);
    let port = engine.address().port().to_string();
    command.args(["--no-defaults", "--host=127.0.0.1", "--user=root", "--protocol=tcp", "--port", &port]);
    Some(command)
}

#[tokio::test]
async fn a_table_that_is_gone() {
    let Some(engine) = server().await else { return };
    let mut ids = drawn(&engine, "gone");
    ids.draw(50).await;
    let mut root = root(engine.address()).await;
    run(&mut root, &["DROP TABLE gone"]).await;
    assert_eq!(ids.repeated(20).await, 20);
    for emptied in ["TRUNCATE gone", "DELETE FROM gone", "DROP TABLE gone"] {
        run(&mut root, &[emptied]).await;
        ids.another().await;
    }
}

#[tokio::test]
async fn another_database() {
    let Some(engine) = server().await else { return };
    let mut ids = drawn(&engine, "moved");
    ids.draw(50).await;
    run(&mut root(engine.address()).await, &["CREATE DATABASE moved"]).await;
    let right = url(engine.address(), "moved", "");
    ids.moves_to(right.replace("/ids?", "/moved?"));
    assert_eq!(ids.repeated(20).await, 20);
    ids.refused().await;
    ids.moves_to(right);
    assert_eq!(ids.draw(50).await, 0);
}

/// A server with these settings.
async fn configured(settings: &str) -> Option<Engine> {
    let engine = Engine::down(ENGINE)?;
    std::fs::write(engine.dir().join("extra.cnf"), format!("[mysqld]\n{settings}")).unwrap();
    engine.restart().await;
    Some(engine)
}

/// Starts a primary and a replica that replicates from it.
async fn pair() -> Option<(Engine, Engine)> {
    let primary = configured("server_id = 1\nlog_bin\nsync_binlog = 1\n").await?;
    let replica = configured("server_id = 2\n").await?;
    let from = format!(
        "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = 'root', \
         master_use_gtid = slave_pos",
        primary.address().port()
    );
    run(&mut root(replica.address()).await, &[&from, "START SLAVE"]).await;
    Some((primary, replica))
}

/// Waits until the replica has the current state; it receives no later changes.
async fn cut_off(primary: &Engine, replica: &Engine) {
    let mut replica = root(replica.address()).await;
    let (end,) = one::<(String,)>(&mut root(primary.address()).await, "SELECT @@gtid_binlog_pos").await;
    let (late,) = one::<(i64,)>(&mut replica, &format!("SELECT MASTER_GTID_WAIT('{end}', 60)")).await;
    assert_eq!(late, 0, "the replica has not reached {end}");
    run(&mut replica, &["STOP SLAVE"]).await;
}

#[tokio::test]
async fn a_replica_that_is_promoted_without_the_last_writes() {
    let Some((primary, replica)) = pair().await else { return };
    let mut ids = drawn(&primary, "replicated");
    ids.draw(30).await;
    cut_off(&primary, &replica).await;
    ids.draw(50).await;
    primary.kill();
    run(&mut root(replica.address()).await, &["RESET SLAVE ALL"]).await;
    // Without `failover=allow`, the store rejects a row that another server wrote last.
    ids.moves_to(url(replica.address(), "replicated", "&timeout=20s"));
    let process = ids.process().await.unwrap();
    let error = ids.draw_with(&process, 1).await.unwrap_err();
    assert_eq!((error.kind(), process.healed()), (ErrorKind::Conflict, 0), "{error}");
    ids.moves_to(url(replica.address(), "replicated", "&timeout=20s&failover=allow"));
    ids.went_back().await;
}
