//! docs/guide/migrate.md: its statements and commands, with writers that never pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill_mysql::driver::prelude::Queryable;
use idmill_mysql::driver::{Conn, Opts};
use idmill_postgres::PostgresOptions;
use idmill_testing::engines::Engine;
use tokio::task::JoinHandle;

use crate::common::Place;
use crate::{ONE, PASSWORD, User};

const PAGE: &str = include_str!("../../../../docs/guide/migrate.md");
const FENCE: i64 = 1_000_000;

/// Returns the statements and the commands of a section, in order.
fn steps(section: &str) -> Vec<String> {
    let text = PAGE.split(&format!("\n## {section}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').unwrap().1.trim().trim_start_matches("$ ").to_owned()).collect()
}

/// Runs a command of the page, and returns its output.
fn idmill(user: &User, command: &str) -> String {
    let command = command.replace('"', "").replace("$IDMILL_STORE", &user.url);
    let args: Vec<_> = command.split_whitespace().skip(1).collect();
    user.done(&args)
}

/// A writer that inserts rows until `end`. It fails at the first failed insert.
struct Writer(Arc<AtomicBool>, JoinHandle<usize>);

impl Writer {
    fn start<F: Future<Output = ()> + Send>(mut insert: impl FnMut() -> F + Send + 'static) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let told = ended.clone();
        let rows = async move {
            let mut rows = 0;
            while !told.load(Ordering::Relaxed) || rows == 0 {
                insert().await;
                rows += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            rows
        };
        Self(ended, tokio::spawn(rows))
    }

    async fn end(self) -> usize {
        self.0.store(true, Ordering::Relaxed);
        self.1.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_serial_column_moves_to_idmill_and_back() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("postgres").await else { return };
    let url = format!("postgres://postgres:{PASSWORD}@{}/postgres?timeout=30s", engine.address());
    let user = User { place: Place::new(), url: url.clone() };
    let options = PostgresOptions::parse(&url).unwrap();
    let admin = options.client().await.unwrap();
    admin.batch_execute("CREATE TABLE orders (id bigserial PRIMARY KEY, old bool NOT NULL)").await.unwrap();
    let client = Arc::new(options.client().await.unwrap());
    let insert = move || {
        let client = client.clone();
        async move { client.batch_execute("INSERT INTO orders (old) VALUES (true)").await.unwrap() }
    };
    let old = Writer::start(insert.clone());
    let steps = steps("PostgreSQL");
    let [fence, create, drop, check, back] = &steps[..] else { panic!("{steps:?}") };
    admin.batch_execute(fence).await.unwrap();
    idmill(&user, create);
    let new = async |count: &str| {
        for id in user.done(&["next", "orders", "-n", count]).lines() {
            admin.batch_execute(&format!("INSERT INTO orders VALUES ({id}, false)")).await.unwrap();
        }
    };
    new("20").await;
    assert!(old.end().await > 1, "the old writer ran all the time");
    admin.batch_execute(&format!("SELECT setval('orders_id_seq', {FENCE})")).await.unwrap();
    let beyond = admin.batch_execute("INSERT INTO orders (old) VALUES (true)").await.unwrap_err();
    assert!(beyond.as_db_error().unwrap().message().contains("reached maximum value"), "{beyond}");
    admin.batch_execute(drop).await.unwrap();
    new("20").await;
    idmill(&user, check);
    let row =
        admin.query_one("SELECT max(id) FILTER (WHERE old), min(id) FILTER (WHERE NOT old) FROM orders", &[]);
    let row = row.await.unwrap();
    assert!(row.get::<_, i64>(0) <= FENCE && row.get::<_, i64>(1) > FENCE, "the fence separates the writers");
    let next = user.json(&["show", "orders"])["next"].as_i64().unwrap();
    admin.batch_execute(&back.replace("1000042", &next.to_string())).await.unwrap();
    assert!(Writer::start(insert).end().await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn live_auto_increment_column_moves_to_idmill_and_back() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("mariadb").await else { return };
    let url = format!("mysql://root@{}/ids?timeout=30s", engine.address());
    let user = User { place: Place::new(), url };
    user.done(&["create", "unused"]); // creates the database
    let connect = || Conn::new(Opts::from_url(&format!("mysql://root@{}/ids", engine.address())).unwrap());
    let mut admin = connect().await.unwrap();
    let table = "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, old BOOL NOT NULL)";
    admin.query_drop(table).await.unwrap();
    let client = Arc::new(tokio::sync::Mutex::new(connect().await.unwrap()));
    let insert = move || {
        let client = client.clone();
        async move { client.lock().await.query_drop("INSERT INTO orders (old) VALUES (true)").await.unwrap() }
    };
    let old = Writer::start(insert.clone());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let steps = steps("MySQL, MariaDB");
    let [fence, largest, create, remove, set, check, back] = &steps[..] else { panic!("{steps:?}") };
    admin.query_drop(fence).await.unwrap();
    let below: i64 = admin.query_first(largest).await.unwrap().unwrap();
    idmill(&user, &create.replace("11", &(below + 1).to_string()));
    for id in user.done(&["next", "orders", "-n", "20"]).lines() {
        admin.query_drop(format!("INSERT INTO orders VALUES ({id}, false)")).await.unwrap();
    }
    assert!(old.end().await > 1, "the old writer ran all the time");
    admin.query_drop(remove).await.unwrap();
    let (overlap, last): (i64, i64) = admin
        .query_first("SELECT SUM(NOT old AND id > 1000000), MAX(id) FROM orders")
        .await
        .unwrap()
        .unwrap();
    assert!(overlap == 0 && last > FENCE, "{overlap} new rows above the fence, the last is {last}");
    idmill(&user, &set.replace("1000021", &(last + 1).to_string()));
    idmill(&user, check);
    assert_eq!(user.done(&["next", "orders"]), format!("{}\n", last + 1));
    admin.query_drop(back).await.unwrap();
    assert!(Writer::start(insert).end().await > 0);
}
