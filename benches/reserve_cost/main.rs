//! The cost of a reserve through a store, compared with the bare statement in the same driver.
//!
//! `cargo bench -p idmill-bench --features engines --bench reserve_cost [-- ENGINE…]`. The engines are
//! started through `ci/engines`, each in a temporary directory. `TMPDIR=/dev/shm` avoids the disk, whose
//! syncs otherwise take most of the time. Reserves and statements alternate in one task, so a slow moment of
//! the machine affects both alike. Each number is a median. `by hand` is the statement that a program would
//! write for its own table, prepared, on a kept connection. `same row`, where measured, is the same kind of
//! statement on a row of idmill's table, whose constraints it must pass.

mod documents;
mod etcd;

use std::time::Instant;

use idmill::SequenceName;
use idmill::store::{Bounds, Reserve, Store};
use idmill_testing::engines::Engine;
use mysql_async::prelude::Queryable;
use redis_driver::AsyncCommands;
use tokio_postgres::{NoTls, types::Type};

const TIMES: usize = 400;
/// Rounds that are not counted: the first reserves connect, prepare and create.
const WARM: usize = 20;
const COUNT: u64 = 100;

fn request() -> Reserve {
    Reserve::new(SequenceName::new("s").expect("a name"), COUNT).create(Bounds::of::<u64>())
}

/// The durations of one kind of call, in microseconds. Calls of the columns alternate.
#[derive(Default)]
struct Column(Vec<f64>);

impl Column {
    async fn time<R>(&mut self, statement: impl Future<Output = R>) -> R {
        let begun = Instant::now();
        let outcome = statement.await;
        self.0.push(begun.elapsed().as_secs_f64() * 1e6);
        outcome
    }

    fn median(&self) -> f64 {
        let mut counted = self.0[WARM.min(self.0.len())..].to_vec();
        counted.sort_by(f64::total_cmp);
        counted.get(counted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

#[derive(Default)]
struct Costs {
    reserve: Column,
    by_hand: Column,
    same_row: Column,
}

impl Costs {
    async fn reserve(&mut self, store: &dyn Store) {
        let request = request();
        self.reserve.time(async { store.reserve(&request).await.map(|_| ()).expect("a grant") }).await;
    }

    fn print(&self, engine: &str) {
        let [reserve, by_hand, same_row] = [&self.reserve, &self.by_hand, &self.same_row].map(Column::median);
        let of_hand = reserve / by_hand;
        print!("| {engine} | {reserve:.0} | {by_hand:.0} | {of_hand:.2} ");
        if same_row.is_nan() {
            println!("| | |");
        } else {
            println!("| {same_row:.0} | {:.2} |", reserve / same_row);
        }
    }
}

async fn postgres() -> Option<Costs> {
    let engine = Engine::start("postgres").await?;
    let (address, mut costs) = (engine.address(), Costs::default());
    let url = format!("postgres://postgres@{address}/postgres");
    let store = idmill_postgres::PostgresStore::open(&url).await.expect("a store");
    let config = format!("host={} port={} user=postgres dbname=postgres", address.ip(), address.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.expect("a client");
    tokio::spawn(async move { drop(connection.await) });
    store.create(&SequenceName::new("row").expect("a name"), Bounds::of::<u64>()).await.expect("a row");
    let table = "CREATE TABLE by_hand (name text PRIMARY KEY, next bigint NOT NULL) WITH (fillfactor = 50); \
                 INSERT INTO by_hand VALUES ('s', 1)";
    client.batch_execute(table).await.expect("a table");
    let sql = "UPDATE by_hand SET next = next + $2 WHERE name = $1 RETURNING next";
    let by_hand = client.prepare(sql).await.expect("a statement");
    let sql =
        "UPDATE idmill_sequences SET next = next + $2::text::numeric WHERE name = $1 RETURNING next::text";
    let same_row = client.prepare_typed(sql, &[Type::TEXT, Type::TEXT]).await.expect("a statement");
    let (count, text) = (i64::try_from(COUNT).expect("a few"), COUNT.to_string());
    for _ in 0..WARM + TIMES {
        costs.reserve(&store).await;
        let run = async { drop(client.query_one(&by_hand, &[&"s", &count]).await.expect("a row")) };
        costs.by_hand.time(run).await;
        let run = async { drop(client.query_one(&same_row, &[&"row", &text]).await.expect("a row")) };
        costs.same_row.time(run).await;
    }
    Some(costs)
}

async fn mariadb() -> Option<Costs> {
    let engine = Engine::start("mariadb").await?;
    let (url, mut costs) = (format!("mysql://root@{}/ids", engine.address()), Costs::default());
    let store = idmill_mysql::MysqlStore::open(&url).await.expect("a store");
    store.create(&SequenceName::new("row").expect("a name"), Bounds::of::<u64>()).await.expect("a row");
    let options = mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(&url).expect("a URL"));
    let mut client = mysql_async::Conn::new(options.prefer_socket(false)).await.expect("a client");
    for sql in [
        "CREATE TABLE by_hand (name VARBINARY(200) PRIMARY KEY, next BIGINT UNSIGNED NOT NULL)",
        "INSERT INTO by_hand VALUES ('s', 1)",
    ] {
        client.query_drop(sql).await.expect("a table");
    }
    let sql = |table| format!("UPDATE {table} SET next = LAST_INSERT_ID(next) + ? WHERE name = ?");
    let by_hand = client.prep(sql("by_hand")).await.expect("a statement");
    let same_row = client.prep(sql("idmill_sequences")).await.expect("a statement");
    for _ in 0..WARM + TIMES {
        costs.reserve(&store).await;
        costs.by_hand.time(async { client.exec_drop(&by_hand, (COUNT, "s")).await.expect("runs") }).await;
        costs.same_row.time(async { client.exec_drop(&same_row, (COUNT, "row")).await.expect("runs") }).await;
    }
    client.disconnect().await.expect("ends");
    Some(costs)
}

fn add(client: &rusqlite::Connection, table: &str, name: &str) {
    let sql = format!("UPDATE {table} SET next = next + ?2 WHERE name = ?1 RETURNING next");
    let mut statement = client.prepare_cached(&sql).expect("a statement");
    let mut rows = statement.query((name, i64::try_from(COUNT).expect("a few"))).expect("runs");
    while rows.next().expect("a row").is_some() {}
}

/// `by hand` blocks the task's own thread. `same row` writes on a thread for blocking work, as an
/// asynchronous program must.
async fn sqlite() -> Option<Costs> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, mut costs) = (dir.path().join("ids.db"), Costs::default());
    let store = idmill_sqlite::SqliteStore::open(&path).await.expect("a store");
    store.create(&SequenceName::new("row").expect("a name"), Bounds::of::<u64>()).await.expect("a row");
    let client = rusqlite::Connection::open(dir.path().join("by_hand.db")).expect("a client");
    let table = "CREATE TABLE by_hand (name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID; \
                 INSERT INTO by_hand VALUES ('s', 1)";
    client.execute_batch(&format!("PRAGMA journal_mode = WAL; {table}")).expect("a table");
    let mut beside = rusqlite::Connection::open(&path).expect("a client");
    for client in [&client, &beside] {
        client.execute_batch("PRAGMA synchronous = EXTRA").expect("a setting");
    }
    for _ in 0..WARM + TIMES {
        costs.reserve(&store).await;
        costs.by_hand.time(async { add(&client, "by_hand", "s") }).await;
        let run = async move {
            let run = move || {
                add(&beside, "idmill_sequences", "row");
                beside
            };
            tokio::task::spawn_blocking(run).await.expect("runs")
        };
        beside = costs.same_row.time(run).await;
    }
    Some(costs)
}

/// `by hand` is `HINCRBY`: no Redis command increments under a condition. `same row` is a script that only
/// calls `HINCRBY`.
async fn redis() -> Option<Costs> {
    let engine = Engine::start("redis").await?;
    let (url, mut costs) = (format!("redis://{}", engine.address()), Costs::default());
    let store = idmill_redis::RedisStore::open(&url).await.expect("a store");
    let client = redis_driver::Client::open(url).expect("a client");
    let mut client = client.get_multiplexed_async_connection().await.expect("a client");
    let script = "return redis.call('HINCRBY', KEYS[1], 'next', ARGV[1])";
    let hash: String =
        redis_driver::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut client).await.expect("a script");
    let mut least = redis_driver::cmd("EVALSHA");
    least.arg(hash).arg(1).arg("least").arg(COUNT);
    for _ in 0..WARM + TIMES {
        costs.reserve(&store).await;
        costs
            .by_hand
            .time(async { client.hincr::<_, _, _, u64>("by_hand", "next", COUNT).await.expect("a number") })
            .await;
        let run = async { least.query_async::<u64>(&mut client).await.map(drop).expect("a number") };
        costs.same_row.time(run).await;
    }
    Some(costs)
}

async fn measure() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    println!("| engine | reserve, µs | by hand | ratio | same row | ratio |\n|---|---:|---:|---:|---:|---:|");
    for engine in ["postgres", "mariadb", "sqlite", "redis", "etcd", "mongodb", "cassandra"] {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == engine) {
            continue;
        }
        let costs = match engine {
            "postgres" => postgres().await,
            "mariadb" => mariadb().await,
            "sqlite" => sqlite().await,
            "redis" => redis().await,
            "etcd" => etcd::costs().await,
            "mongodb" => documents::mongodb().await,
            _ => documents::cassandra().await,
        };
        if let Some(costs) = costs {
            costs.print(engine);
        }
    }
}

fn main() {
    // `cargo bench -- --test` only checks that this program builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Box::pin(measure()));
}
