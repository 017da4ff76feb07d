//! A user's first commands on every store, over its real engine, and the errors after that engine is down.

mod advice;
#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod guard;
mod migrate;
mod remedies;
mod retries;

use common::{Place, Ran};
use idmill_testing::engines::Engine;
use serde_json::Value;
use tokio::sync::Mutex;

/// Only one engine runs at a time: a small machine has too little memory for all engines.
static ONE: Mutex<()> = Mutex::const_new(());

/// A password that must not appear in any output.
const PASSWORD: &str = "hunter2";

/// A store, as a user specifies it.
#[derive(Clone, Copy)]
struct Case {
    /// Each `{}` stands for the address of the engine at the same position. `suffer` lowers the timeout for a
    /// store that is down.
    url: &'static str,
    engines: &'static [&'static str],
    /// Number of ids that the first command takes from the durable counter. A window takes more than the
    /// command prints.
    takes: u64,
    down: Down,
}

/// The role of the first engine.
#[derive(Clone, Copy, PartialEq)]
enum Down {
    /// The store.
    Store,
    /// A window in front of a store that can be inspected without the engine.
    Window,
    /// There is no engine.
    Never,
}

const SQLITE: Case = Case { url: "sqlite:ids.db", engines: &[], takes: 5, down: Down::Never };

const MONGODB: Case = Case {
    url: "mongodb://{}/ids?directConnection=true&timeout=30s",
    engines: &["ferretdb"],
    takes: 5,
    down: Down::Store,
};

const MYSQL: Case =
    Case { url: "mysql://root@{}/ids?timeout=30s", engines: &["mariadb"], takes: 5, down: Down::Store };

const CASSANDRA: Case = Case {
    url: "cassandra://app:hunter2@{}/ids?dc=dc1&create_keyspace=dc1:1&timeout=30s",
    engines: &["cassandra"],
    takes: 5,
    down: Down::Store,
};

const CASSANDRA_GEO: Case = Case {
    url: "cassandra://app:hunter2@{}/ids?mode=geo&dc=dc1&range=100&create_keyspace=dc1:1&timeout=30s",
    takes: 100,
    ..CASSANDRA
};

const SPANNER: Case = Case {
    url: "spanner://projects/shop/instances/main/databases/ids?emulator={}",
    engines: &["spanner"],
    takes: 5,
    down: Down::Store,
};

const DATASTORE: Case = Case {
    url: "datastore://shop?emulator={}&timeout=30s",
    engines: &["datastore"],
    takes: 5,
    down: Down::Store,
};

const FIRESTORE: Case = Case { engines: &["firestore"], ..DATASTORE };

const ETCD: Case =
    Case { url: "etcd://{}?prefix=/shop/&timeout=30s", engines: &["etcd"], takes: 5, down: Down::Store };

const POSTGRES: Case = Case {
    url: "postgres://postgres:hunter2@{}/postgres?timeout=30s",
    engines: &["postgres"],
    takes: 5,
    down: Down::Store,
};

const REDIS: Case = Case {
    url: "redis://default:hunter2@{}/0?timeout=30s",
    engines: &["redis-with-a-password"],
    takes: 5,
    down: Down::Store,
};

const POSTGRES_NATIVE: Case =
    Case { url: "postgresql://postgres:hunter2@{}/postgres?timeout=30s&sequences=native", ..POSTGRES };

const MEMCACHED_SQLITE: Case = Case {
    url: "sqlite:ids.db?window=memcached://{}%3Fblock%3D100%26timeout%3D30s",
    engines: &["memcached"],
    takes: 16,
    down: Down::Window,
};

const MEMCACHED_DATASTORE: Case = Case {
    url: "datastore://shop?window=memcached://{}%3Fblock%3D100%26timeout%3D30s&emulator={}&timeout=30s",
    engines: &["memcached", "datastore"],
    takes: 16,
    down: Down::Window,
};

const REDIS_SQLITE: Case = Case {
    url: "sqlite:ids.db?window=redis://{}%3Fblock%3D100%26timeout%3D30s",
    engines: &["redis"],
    takes: 16,
    down: Down::Window,
};

#[tokio::test]
async fn sqlite() {
    SQLITE.run().await;
}

#[tokio::test]
async fn mongodb() {
    MONGODB.run().await;
}

/// The server has no users, and rejects a login.
#[tokio::test]
async fn mongodb_with_a_password() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("ferretdb").await else { return };
    let address = engine.address().to_string();
    let url = format!("mongodb://app:{PASSWORD}@{address}/ids?directConnection=true&timeout=30s");
    let user = User { place: Place::new(), url };
    for args in [&["next", "orders"][..], &["check"], &["next", "orders", "--json"]] {
        let ran = user.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    }
    engine.kill();
    MONGODB.suffer(&user, &address);
}

#[tokio::test]
async fn mysql() {
    MYSQL.run().await;
}

/// The server requires the password, also for additional connections.
#[tokio::test]
async fn mysql_with_a_password() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("mariadb").await else { return };
    let address = engine.address().to_string();
    let root = User { place: Place::new(), url: format!("mysql://root@{address}/ids?timeout=30s") };
    root.done(&["next", "orders"]);
    let pool = idmill_mysql::MysqlOptions::parse(&root.url).unwrap().pool().unwrap();
    let mut connection = pool.get_conn().await.unwrap();
    for sql in [
        format!("CREATE USER app@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'"),
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ids.* TO app@'127.0.0.1'".to_owned(),
    ] {
        idmill_mysql::driver::prelude::Queryable::query_drop(&mut connection, sql).await.unwrap();
    }
    let user = User { place: Place::new(), url: format!("mysql://app:{PASSWORD}@{address}/ids?timeout=30s") };
    assert_eq!(user.done(&["next", "orders"]), "2\n");
    let bench = ["bench", "--mode", "in-transaction", "--threads", "2", "-n", "20", "--transaction", "0s"];
    user.done(&bench);
    let wrong =
        User { place: Place::new(), url: format!("mysql://app:{PASSWORD}x@{address}/ids?timeout=30s") };
    let ran = wrong.run(&["next", "orders"]);
    assert!(ran.code == 1 && ran.err.contains("check the user and its password"), "{ran:?}");
    engine.kill();
    MYSQL.suffer(&user, &address);
}

#[tokio::test]
async fn cassandra() {
    CASSANDRA.run().await;
}

#[tokio::test]
async fn cassandra_geo() {
    CASSANDRA_GEO.run().await;
}

#[tokio::test]
async fn spanner() {
    SPANNER.run().await;
}

#[tokio::test]
async fn datastore() {
    DATASTORE.run().await;
}

#[tokio::test]
async fn firestore() {
    FIRESTORE.run().await;
}

#[tokio::test]
async fn etcd() {
    ETCD.run().await;
}

#[tokio::test]
async fn postgres() {
    POSTGRES.run().await;
}

#[tokio::test]
async fn postgres_native() {
    POSTGRES_NATIVE.run().await;
}

#[tokio::test]
async fn redis() {
    REDIS.run().await;
}

#[tokio::test]
async fn redis_sqlite() {
    REDIS_SQLITE.run().await;
}

#[tokio::test]
async fn memcached_sqlite() {
    MEMCACHED_SQLITE.run().await;
}

#[tokio::test]
async fn memcached_datastore() {
    MEMCACHED_DATASTORE.run().await;
}

async fn begin(name: &str) -> Option<Engine> {
    if name != "redis-with-a-password" {
        return Engine::start(name).await;
    }
    let engine = Engine::set("redis", idmill_conformance::free_port(), &["--requirepass", PASSWORD])?;
    engine.restart().await;
    Some(engine)
}

impl Case {
    async fn run(&self) {
        let _one = ONE.lock().await;
        let mut engines = Vec::new();
        for name in self.engines {
            let Some(engine) = begin(name).await else { return };
            engines.push(engine);
        }
        let addresses: Vec<_> = engines.iter().map(|engine| engine.address().to_string()).collect();
        let url = addresses.iter().fold(self.url.to_owned(), |url, address| url.replacen("{}", address, 1));
        let user = User { place: Place::new(), url };
        self.draw(&user);
        Self::administrate(&user);
        move_and_return(&user);
        measure(&user);
        remove(&user);
        if let Some(engine) = engines.first() {
            engine.kill();
            self.suffer(&user, &addresses[0]);
        }
    }

    /// Asserts that ids drawn by one process are visible to the next.
    fn draw(&self, user: &User) {
        assert_eq!(user.done(&["next", "orders", "-n", "5"]), "1\n2\n3\n4\n5\n");
        assert_eq!(user.done(&["next", "orders", "-n", "5"]), "6\n7\n8\n9\n10\n");
        let next = 10_u64.next_multiple_of(self.takes) + 1;
        let table = user.done(&["list"]);
        let row: Vec<_> =
            table.lines().nth(1).expect("a row below the headings").split_whitespace().collect();
        assert_eq!(row[..2], ["orders", &next.to_string()], "{table}");
        let listed = user.json(&["list"]);
        assert_eq!((&listed["name"], &listed["next"]), (&"orders".into(), &next.into()));
        assert_eq!(user.json(&["show", "orders"]), listed);
    }

    fn administrate(user: &User) {
        let changed = user.json(&["set", "orders", "--next", "5000"]);
        assert_eq!(changed["after"]["next"], 5000);
        assert_eq!(user.json(&["show", "orders"]), changed["after"]);
        // A window serves its own ids for a while if its global counter is slow, so draw several times.
        let tries = if user.url.contains("mode=geo") { 5 } else { 1 };
        let goes_on = (0..tries).any(|_| user.done(&["next", "orders"]) == "5000\n");
        assert!(goes_on, "{tries} draws did not go on at 5000");
        assert_eq!(user.run(&["set", "orders", "--next", "7"]).code, 5, "that would be backwards");
        assert_eq!(user.run(&["create", "orders"]).code, 5, "it exists");
        assert_eq!(user.run(&["show", "others"]).code, 4);
    }

    /// Asserts that errors report the address of an engine that is down.
    fn suffer(&self, user: &User, address: &str) {
        // The store behind a window is contacted first. This store's engine is running, but may be busy, so
        // the timeout stays long.
        let (url, timeout) = match self.down {
            Down::Window => (user.url.clone(), "12s"),
            Down::Store | Down::Never => (user.url.replace("timeout=30s", "timeout=2s"), "4s"),
        };
        let next = ["next", "orders", "--timeout", timeout];
        let (list, show) = (["list", "--timeout", timeout], ["show", "orders", "--timeout", timeout]);
        let mut commands = vec![&next[..]];
        if self.down == Down::Store {
            commands.extend([&list[..], &show, &["check"], &["bench", "-n", "1"]]);
        }
        for args in commands {
            for json in [&[][..], &["--json"]] {
                let ran = user.run_with(&url, &[args, json].concat());
                assert_eq!((ran.code, ran.out.as_str()), (75, ""), "{args:?}: {ran:?}");
                assert!(ran.err.contains(address), "{args:?} does not say where: {ran:?}");
            }
        }
        if self.down == Down::Store {
            let ran = user.run_with(&url, &["doctor"]);
            assert!(ran.code == 8 && ran.out.contains("not_seen") && ran.out.contains(address), "{ran:?}");
        }
        if self.down == Down::Window {
            // Only the window is unreachable: `list` reads the store, which still has the sequence.
            assert!(user.done(&["list"]).contains("orders"));
        }
    }
}

/// Moves sequences to another kind of store, draws from them there, and moves them back with their
/// position.
fn move_and_return(user: &User) {
    const ELSEWHERE: &str = "sqlite:elsewhere.db";
    let elsewhere = |args: &[&str]| {
        let ran = user.run_with(ELSEWHERE, args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    };
    let sound = user.done(&["doctor"]);
    assert!(sound.starts_with("sound"), "{sound}");
    user.done(&["export", "--output", "moved.jsonl"]);
    assert!(elsewhere(&["import", "moved.jsonl"]).contains("created orders"));
    assert_eq!(elsewhere(&["next", "orders", "-n", "500"]).lines().count(), 500);
    elsewhere(&["export", "--output", "back.jsonl"]);
    assert!(user.done(&["import", "back.jsonl"]).contains("raised orders"));
    let next = |shown: &str| serde_json::from_str::<Value>(shown).unwrap()["next"].clone();
    let there = next(&elsewhere(&["show", "orders", "--json"]));
    assert_eq!(next(&user.done(&["show", "orders", "--json"])), there);
    // An import never lowers a sequence.
    assert_eq!(user.done(&["import", "moved.jsonl"]), "");
    assert_eq!(next(&user.done(&["show", "orders", "--json"])), there);
}

/// Runs the measurements. Asserts that all operations are allowed, and that reports name the store, but
/// not its password.
fn measure(user: &User) {
    let report = user.json(&["check", "--samples", "5"]);
    assert!(
        report["operations"].as_array().unwrap().iter().all(|tried| tried["error"].is_null()),
        "{report}"
    );
    let bench = ["bench", "--mode", "async-batch", "--threads", "1", "-n", "3", "--transaction", "0s"];
    user.done(&[&bench[..], &["--json", "bench.json"]].concat());
    let kept = std::fs::read_to_string(user.place.path().join("bench.json")).unwrap();
    assert!(!kept.contains(PASSWORD), "{kept}");
    user.done(&["remove", "idmill-bench", "--yes"]);
}

fn remove(user: &User) {
    assert_eq!(user.run(&["remove", "orders"]).code, 5, "`remove` requires --yes");
    user.done(&["remove", "orders", "--yes"]);
    assert_eq!(user.done(&["list", "--json"]), "");
    assert_eq!(user.run(&["remove", "orders", "--yes"]).code, 4);
}

/// A user with a shell and the URL of a store.
struct User {
    place: Place,
    url: String,
}

impl User {
    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(&self.url, args)
    }

    fn run_with(&self, url: &str, args: &[&str]) -> Ran {
        let ran = self.place.run(&[args, &["--store", url]].concat());
        assert!(
            !ran.out.contains(PASSWORD) && !ran.err.contains(PASSWORD),
            "{args:?} tells the password: {ran:?}"
        );
        ran
    }

    /// Runs a command that must succeed, and returns its output. Retries while the engine is busy.
    fn done(&self, args: &[&str]) -> String {
        let again = |ran: &Ran| ran.code == 75 && ran.err.contains("retry later");
        let mut ran = self.run(args);
        for _ in 0..10 {
            if again(&ran) {
                ran = self.run(args);
            }
        }
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[args, &["--json"]].concat())).unwrap()
    }
}

/// A listener that accepts connections for every store, and never answers.
#[test]
fn timeout_includes_the_time_to_connect() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    std::thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    let urls = [
        "postgres://u:hunter2@{}/ids?timeout=60m",
        "postgres://u:hunter2@{}/ids?timeout=60m&sequences=native",
        "mysql://root@{}/ids?timeout=60m",
        "mongodb://{}/ids?directConnection=true&timeout=60m",
        "cassandra://{}/ids?timeout=60m",
        "spanner://projects/p/instances/i/databases/d?emulator={}",
        "datastore://p?emulator={}&timeout=60m",
        "redis://{}?timeout=60m",
        "etcd://{}?timeout=60m",
        "idmill://{}?timeout=60m",
        "sqlite:ids.db?window=memcached://{}",
    ];
    std::thread::scope(|scope| {
        for url in urls {
            scope.spawn(move || {
                let (place, begun) = (Place::new(), std::time::Instant::now());
                let url = url.replace("{}", &address.to_string());
                let ran = place.run(&["next", "s", "--timeout", "2s", "--store", &url]);
                assert_eq!((ran.code, ran.out.as_str()), (75, ""), "{url}: {ran:?}");
                assert!(!ran.err.contains(PASSWORD), "{}", ran.err);
                // This limit detects a hang: the drivers' own timeouts are at least 30 s.
                assert!(begun.elapsed().as_secs() < 25, "{url}: {:?}", begun.elapsed());
            });
        }
    });
}
