//! Commands wait until the store is available again: one rule for opening it and for each call.

use std::process::{Child, Stdio};
use std::time::Duration;

use idmill_mysql::driver::prelude::Queryable;
use idmill_mysql::driver::{Conn, Opts};
use idmill_postgres::PostgresOptions;
use idmill_testing::engines::Engine;
use idmill_testing::{eventually, holds};

use crate::common::{Place, Ran};
use crate::{ONE, User};

/// Commands that open the store, read it and change it. Each succeeds on a store with the sequence `orders`.
const COMMANDS: [&[&str]; 6] = [
    &["next", "orders"],
    &["create", "users", "--if-not-exists"],
    &["set", "orders", "--max", "1000000"],
    &["list"],
    &["show", "orders"],
    &["export"],
];

/// Starts each command, and returns after it had time to fail.
async fn started(user: &User, commands: &[&[&str]]) -> Vec<Child> {
    let start = |args: &&[&str]| {
        let args = [args, &["--timeout", "120s", "--store", &user.url][..]].concat();
        let mut command = user.place.command(&args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let commands = commands.iter().map(start).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    commands
}

fn all_succeed(commands: Vec<Child>) {
    for command in commands {
        let ran: Ran = command.wait_with_output().unwrap().into();
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_and_stopped_postgres_is_retried() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("postgres").await else { return };
    let url = |role: &str| format!("postgres://{role}@{}/postgres", engine.address());
    let admin = PostgresOptions::parse(&url("postgres")).unwrap().client().await.unwrap();
    admin.batch_execute("CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA public TO app").await.unwrap();
    let user = User { place: Place::new(), url: url("app") };
    user.done(&["next", "orders"]);
    admin.batch_execute("ALTER ROLE app CONNECTION LIMIT 0").await.unwrap();
    let commands = started(&user, &COMMANDS).await;
    let full = user.run(&["list", "--timeout", "3s"]);
    assert!(full.code == 75 && full.err.contains("53300"), "{full:?}");
    admin.batch_execute("ALTER ROLE app CONNECTION LIMIT -1").await.unwrap();
    all_succeed(commands);
    engine.kill();
    let commands = started(&user, &COMMANDS).await;
    engine.restart().await;
    all_succeed(commands);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_and_unready_mysql_is_retried() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("mariadb").await else { return };
    let user = User { place: Place::new(), url: format!("mysql://root@{}/ids", engine.address()) };
    user.done(&["next", "orders"]);
    let connect = || Conn::new(Opts::from_url(&format!("mysql://root@{}/ids", engine.address())).unwrap());
    let mut admin = connect().await.unwrap();
    // The server notices later that the command has ended, and then one more may connect.
    eventually("only one connection", async || {
        let status: Option<(String, u32)> =
            admin.query_first("SHOW STATUS LIKE 'Threads_connected'").await.unwrap();
        let (_, connected) = status.unwrap();
        holds(connected == 1, connected)
    })
    .await;
    // 10 is the smallest limit, and one more administrator may connect.
    admin.query_drop("SET GLOBAL max_connections = 10").await.unwrap();
    let mut held = Vec::new();
    while let Ok(connection) = connect().await {
        held.push(connection);
    }
    let commands = started(&user, &COMMANDS).await;
    let full = user.run(&["list", "--timeout", "3s"]);
    assert!(full.code == 75 && full.err.contains("1040"), "{full:?}");
    drop(held);
    all_succeed(commands);
    // A node of a Galera cluster returns 1047 until it is ready.
    for call in ["INSERT", "UPDATE"] {
        let signal =
            "FOR EACH ROW SIGNAL SQLSTATE '08S01' SET MYSQL_ERRNO = 1047, MESSAGE_TEXT = 'not ready'";
        admin
            .query_drop(format!("CREATE TRIGGER {call}s BEFORE {call} ON idmill_sequences {signal}"))
            .await
            .unwrap();
    }
    let changes: [&[&str]; 3] =
        [&["next", "orders"], &["create", "items"], &["set", "orders", "--max", "2000000"]];
    let commands = started(&user, &changes).await;
    for call in ["INSERT", "UPDATE"] {
        admin.query_drop(format!("DROP TRIGGER {call}s")).await.unwrap();
    }
    all_succeed(commands);
}
