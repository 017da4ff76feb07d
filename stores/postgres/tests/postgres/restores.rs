//! Restored backups of PostgreSQL, emptied tables, promoted replicas: without a guard ids are
//! duplicated, with a guard they are not.

use std::path::Path;
use std::process::Command;

use idmill_testing::engines::Engine;
use idmill_testing::restores::{Backup, Drawn, Process, ran};
use idmill_testing::{eventually, holds};

use crate::{client, schemes, server, url};

/// The ids drawn from the server.
fn drawn(engine: &Engine) -> Drawn {
    Drawn::from(schemes(), url(engine, ""))
}

/// Stops the server like an administrator, even if clients are connected. After a SIGKILL its
/// children could still run while its files are copied.
pub(crate) async fn stop(engine: &Engine) {
    let pid = engine.pid().expect("it runs").to_string();
    ran(Command::new("kill").args(["-INT", &pid]));
    // `postmaster.pid` is removed last.
    eventually("the server has stopped", async || {
        holds(!engine.dir().join("data/postmaster.pid").exists(), "postmaster.pid")
    })
    .await;
    engine.kill();
}

/// A PostgreSQL command for the server; `None` if it is not installed.
pub(crate) fn command(engine: &Engine, program: &str) -> Option<Command> {
    if Command::new(program).arg("--version").output().is_err() {
        idmill_testing::skip(&format!("there is no {program}"));
        return None;
    }
    let mut command = Command::new(program);
    let port = engine.address().port().to_string();
    command.args(["--host=127.0.0.1", "--username=postgres", "--port", &port]);
    Some(command)
}

async fn put_back(engine: &Engine, backup: &Backup) {
    stop(engine).await;
    backup.put_back();
    engine.restart().await;
}

#[tokio::test]
async fn a_data_directory_that_is_put_back() {
    for options in ["", "&sequences=native"] {
        let Some(engine) = server().await else { return };
        let mut ids = Drawn::from(schemes(), url(&engine, options));
        ids.draw(30).await;
        stop(&engine).await;
        let backup = Backup::of(&engine.dir().join("data"));
        engine.restart().await;
        ids.draw(50).await;
        put_back(&engine, &backup).await;
        ids.went_back().await;
    }
}

/// The process should be stopped for the restore, but continues.
#[tokio::test]
async fn a_process_that_runs_over_a_restore() {
    let Some(engine) = server().await else { return };
    let mut ids = drawn(&engine);
    ids.draw(30).await;
    stop(&engine).await;
    let backup = Backup::of(&engine.dir().join("data"));
    engine.restart().await;
    let processes = [ids.process().await.unwrap(), ids.process().await.unwrap()];
    for process in &processes {
        ids.draw_with(process, 25).await.unwrap();
    }
    put_back(&engine, &backup).await;
    for process in processes.iter().cycle().take(6) {
        ids.draw_with(process, 25).await.unwrap();
    }
    assert_eq!(processes.iter().map(Process::healed).sum::<u64>(), 1);
}

#[tokio::test]
async fn a_table_that_is_dumped_and_restored() {
    let Some(engine) = server().await else { return };
    let (Some(mut dump), Some(mut restore)) = (command(&engine, "pg_dump"), command(&engine, "psql")) else {
        return;
    };
    let file = engine.dir().join("dump.sql");
    let mut ids = drawn(&engine);
    ids.draw(30).await;
    ran(dump.args(["--clean", "--table=idmill_sequences", "postgres", "--file"]).arg(&file));
    ids.draw(50).await;
    restore.args(["--set=ON_ERROR_STOP=1", "--quiet", "postgres", "--file"]).arg(&file);
    ran(&mut restore);
    ids.went_back().await;
}

/// A restored sequence is in another file, so its epoch is higher.
#[tokio::test]
async fn native_sequence_dumped_and_restored_repeats_nothing() {
    let Some(engine) = server().await else { return };
    client(&engine).await.batch_execute("CREATE DATABASE another").await.unwrap();
    for database in ["postgres", "another"] {
        let (Some(mut dump), Some(mut restore)) = (command(&engine, "pg_dump"), command(&engine, "psql"))
        else {
            return;
        };
        let file = engine.dir().join("dump.sql");
        let mut ids = Drawn::from(schemes(), url(&engine, "&sequences=native"));
        ids.draw(30).await;
        ran(dump.args(["--clean", "--if-exists", "--table=s", "postgres", "--file"]).arg(&file));
        ids.draw(50).await;
        ran(restore.args(["--set=ON_ERROR_STOP=1", "--quiet", database, "--file"]).arg(&file));
        ids.moves_to(url(&engine, "&sequences=native").replace("/postgres?", &format!("/{database}?")));
        ids.went_back().await;
        client(&engine).await.batch_execute("DROP SEQUENCE IF EXISTS s").await.unwrap();
    }
}

#[tokio::test]
async fn native_sequence_set_back_and_altered_repeats_nothing() {
    let Some(engine) = server().await else { return };
    let mut ids = Drawn::from(schemes(), url(&engine, "&sequences=native"));
    ids.draw(80).await;
    let admin = client(&engine).await;
    admin.batch_execute("SELECT setval('s', 30); ALTER SEQUENCE s INCREMENT BY 1").await.unwrap();
    ids.went_back().await;
}

#[tokio::test]
async fn a_table_that_is_gone() {
    let Some(engine) = server().await else { return };
    let mut ids = drawn(&engine);
    ids.draw(50).await;
    let admin = client(&engine).await;
    admin.batch_execute("DROP TABLE idmill_sequences").await.unwrap();
    assert_eq!(ids.repeated(20).await, 20);
    for emptied in
        ["TRUNCATE idmill_sequences", "DELETE FROM idmill_sequences", "DROP TABLE idmill_sequences"]
    {
        admin.batch_execute(emptied).await.unwrap();
        ids.another().await;
    }
}

#[tokio::test]
async fn another_database() {
    let Some(engine) = server().await else { return };
    let mut ids = drawn(&engine);
    ids.draw(50).await;
    client(&engine).await.batch_execute("CREATE DATABASE another").await.unwrap();
    let right = url(&engine, "");
    ids.moves_to(right.replace("/postgres?", "/another?"));
    assert_eq!(ids.repeated(20).await, 20);
    ids.refused().await;
    ids.moves_to(right);
    assert_eq!(ids.draw(50).await, 0);
}

/// A replica with the current state, which receives no later changes.
pub(crate) async fn replica(primary: &Engine) -> Option<Engine> {
    let replica = server().await?;
    stop(&replica).await;
    let data = replica.dir().join("data");
    std::fs::remove_dir_all(&data).unwrap();
    let streams = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"];
    ran(command(primary, "pg_basebackup")?.args(streams).arg(&data));
    belongs_as(&data, &primary.dir().join("data"));
    replica.restart().await;
    let (first, second) = (client(primary).await, client(&replica).await);
    let end: String = first.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap().get(0);
    let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn");
    eventually("the replica has caught up", async || {
        let there: Option<bool> = second.query_one(&caught_up, &[]).await.unwrap().get(0);
        holds(there == Some(true), there)
    })
    .await;
    second.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
    second.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let senders = "SELECT count(*) FROM pg_stat_replication";
    eventually("the primary has no replica", async || {
        let senders: i64 = first.query_one(senders, &[]).await.unwrap().get(0);
        holds(senders == 0, senders)
    })
    .await;
    Some(replica)
}

fn belongs_as(dir: &Path, other: &Path) {
    ran(Command::new("chown").arg("-R").arg("--reference").arg(other).arg(dir));
}

pub(crate) async fn promote(replica: &Engine) {
    assert!(client(replica).await.query_one("SELECT pg_promote()", &[]).await.unwrap().get::<_, bool>(0));
}

/// Without `failover=allow` the new timeline is refused, even with a guard.
#[tokio::test]
async fn a_replica_that_is_promoted_without_the_last_writes() {
    let Some(primary) = server().await else { return };
    let mut ids = drawn(&primary);
    ids.draw(30).await;
    let Some(replica) = replica(&primary).await else { return };
    ids.draw(50).await;
    stop(&primary).await;
    promote(&replica).await;
    ids.moves_to(url(&replica, "&failover=allow"));
    ids.went_back().await;
}
