//! Each printed command that moves a counter is carried out for a table with ids up to 500. No id repeats.

use std::process::Stdio;

use idmill_mysql::driver::prelude::Queryable;
use idmill_mysql::driver::{Conn, Opts};
use idmill_postgres::PostgresOptions;
use idmill_sqlite::rusqlite::Connection;
use idmill_testing::engines::Engine;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::common::{Place, Ran};
use crate::{ONE, User};

const GUARD: &str = "file:ids.witness";
/// The table has these ids before the first draw.
const TABLE: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY)";
const ROWS: &str = "INSERT INTO orders VALUES (1), (500)";
/// Makes each sequence differ from the witness or from the table.
const FAULTS: [&str; 4] = [
    "UPDATE idmill_sequences SET next = 41 WHERE name = 'back'",
    "UPDATE idmill_sequences SET incarnation = incarnation + 1 WHERE name = 'replaced'",
    "UPDATE idmill_sequences SET incarnation = incarnation + 1, next = 701 WHERE name = 'foreign'",
    "DELETE FROM idmill_sequences WHERE name = 'missing'",
];
const SEQUENCES: [&str; 6] = ["behind", "used", "back", "replaced", "foreign", "missing"];

/// Returns the commands in backticks in an error, with N above the ids in the table.
fn advised(ran: &Ran) -> Vec<String> {
    let commands = ran.err.split('`').skip(1).step_by(2).filter(|text| text.contains(" N"));
    let filled =
        commands.map(|text| text.replace("NAME", "other").replace(" MAX", " 9000").replace(" N", " 501"));
    filled.collect()
}

/// Carries out a command as it was printed.
fn carry_out(user: &User, command: &str) {
    let ran: Ran = user.place.shell(command).stdin(Stdio::null()).output().unwrap().into();
    assert_eq!(ran.code, 0, "{command}: {ran:?}");
}

/// Draws an id, which must be above all ids in use.
fn draw(user: &User, name: &str, guard: &[&str], largest: u64) {
    let id: u64 = user.done(&[&["next", name], guard].concat()).trim().parse().unwrap();
    assert!(id > largest, "{name}: {id} is in use");
}

/// Carries out the hints of errors.
fn hints(user: &User) {
    user.done(&["create", "small", "--max", "100"]);
    user.done(&["next", "small", "-n", "100"]);
    for (args, name) in [(&["next", "small"][..], "small"), (&["show", "absent"], "absent")] {
        let ran = user.run(args);
        let commands = advised(&ran);
        assert!(!commands.is_empty(), "{ran:?}");
        for command in commands {
            carry_out(user, &command);
        }
        draw(user, name, &[], 500);
    }
}

/// Carries out the commands of the doctor. `column` is the URL of the column.
async fn findings(user: &User, column: &str, execute: impl AsyncFn(String)) {
    let guard = ["--guard", GUARD];
    user.done(&["next", "first", "--guard", &format!("{GUARD}?new=true")]);
    for name in SEQUENCES {
        user.done(&[&["create", name, "--max", "100"], &guard[..]].concat());
        let count = if name == "used" { "100" } else { "60" };
        user.done(&[&["next", name, "-n", count], &guard[..]].concat());
    }
    for name in ["behind", "back", "replaced", "foreign", "missing"] {
        execute(format!("UPDATE idmill_sequences SET max = 2147483647 WHERE name = '{name}'")).await;
    }
    for sql in FAULTS {
        execute(sql.to_owned()).await;
    }
    let without = user.run(&[&["doctor", "--json"], &guard[..]].concat());
    let used = without.out.lines().find(|line| line.contains("exhausted")).unwrap_or_default();
    assert!(used.contains(r#""command":null"#), "no column was compared: {without:?}");
    let mut args = vec!["doctor".to_owned(), "--json".to_owned(), "--guard".to_owned(), GUARD.to_owned()];
    for name in SEQUENCES {
        args.extend(["--check".to_owned(), format!("{name}={column}")]);
    }
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let found = user.run(&args);
    let commands: Vec<_> = found
        .out
        .lines()
        .filter_map(|line| Some(serde_json::from_str::<Value>(line).unwrap()["command"].as_str()?.to_owned()))
        .collect();
    assert!(commands.len() >= SEQUENCES.len(), "{found:?}");
    for command in commands {
        // A command for one finding is rejected if another finding has already raised the sequence further.
        let ran: Ran = user.place.shell(&command).stdin(Stdio::null()).output().unwrap().into();
        assert!([0, 5].contains(&ran.code), "{command}: {ran:?}");
    }
    for name in SEQUENCES {
        draw(user, name, &guard, if name == "foreign" { 700 } else { 500 });
    }
}

#[tokio::test]
async fn advice_on_sqlite_repeats_no_id() {
    let user = User { place: Place::new(), url: "sqlite:ids.db".to_owned() };
    // The hint for a missing file.
    let ran = user.run(&["list"]);
    for command in advised(&ran) {
        carry_out(&user, &command);
    }
    draw(&user, "other", &[], 500);
    let database = Connection::open(user.place.path().join("ids.db")).unwrap();
    database.execute_batch(&format!("{TABLE}; {ROWS}")).unwrap();
    hints(&user);
    findings(&user, "sqlite:ids.db?column=orders.id", async |sql| database.execute_batch(&sql).unwrap())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_on_postgres_repeats_no_id() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("postgres").await else { return };
    let url = format!("postgres://postgres@{}/postgres", engine.address());
    let user = User { place: Place::new(), url: url.clone() };
    let admin = PostgresOptions::parse(&url).unwrap().client().await.unwrap();
    admin.batch_execute(&format!("{TABLE}; {ROWS}")).await.unwrap();
    hints(&user);
    let execute = async |sql: String| admin.batch_execute(&sql).await.unwrap();
    let column = format!("{url}?column=orders.id");
    findings(&user, &column, execute).await;
    let native = User { url: format!("{url}?sequences=native"), place: user.place };
    hints(&native);
    native.done(&["next", "behind", "-n", "60"]);
    let found = native.run(&["doctor", "--json", "--check", &format!("behind={column}")]);
    let found: Value = serde_json::from_str(found.out.lines().next().unwrap()).unwrap();
    let ran: Ran = native.place.shell(found["command"].as_str().unwrap()).output().unwrap().into();
    assert_eq!(ran.code, 0, "{found}: {ran:?}");
    draw(&native, "behind", &[], 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_on_mysql_repeats_no_id() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("mariadb").await else { return };
    let url = format!("mysql://root@{}/ids", engine.address());
    let user = User { place: Place::new(), url: url.clone() };
    user.done(&["create", "unused"]); // creates the database
    let admin = Mutex::new(Conn::new(Opts::from_url(&url).unwrap()).await.unwrap());
    let execute = async |sql: String| admin.lock().await.query_drop(sql).await.unwrap();
    execute(TABLE.to_owned()).await;
    execute(ROWS.to_owned()).await;
    hints(&user);
    findings(&user, &format!("{url}?column=orders.id"), execute).await;
}
