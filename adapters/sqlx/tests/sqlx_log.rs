//! A program that logs with the crate `log`, as with env_logger. It is a test program of its own, since the
//! logger is set for the whole process.

#![allow(clippy::disallowed_types, reason = "no model runs this program")]

use std::sync::Mutex;

use idmill_sqlx::driver::postgres::{PgConnectOptions, PgPoolOptions};
use idmill_sqlx::driver::{Executor as _, PgPool};
use idmill_sqlx::idmill::SequenceName;
use idmill_sqlx::idmill::store::{Bounds, Reserve, Store as _};
use idmill_sqlx::postgres::PostgresStore;
use idmill_testing::engines::Engine;
use log::{LevelFilter, Log, Metadata, Record};

/// The level, target and text of each record.
static RECORDS: Records = Records(Mutex::new(Vec::new()));

struct Records(Mutex<Vec<String>>);

impl Log for Records {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // A record of a statement has its duration.
        let text = record.args().to_string();
        let text = text.split(" elapsed=").next().unwrap_or_default();
        self.0.lock().unwrap().push(format!("{} {}: {text}", record.level(), record.target()));
    }

    fn flush(&self) {}
}

/// Returns the records of a statement, a warning of the server, a library with `tracing`, and the program.
async fn records_of_work(pool: &PgPool) -> Vec<String> {
    RECORDS.0.lock().unwrap().clear();
    pool.execute("DO $$ BEGIN RAISE WARNING 'of the server'; END $$").await.unwrap();
    tracing::info!("of a library");
    log::info!("of the program");
    std::mem::take(&mut *RECORDS.0.lock().unwrap())
}

#[tokio::test]
async fn log_records_are_the_same_with_and_without_a_store() {
    let Some(engine) = Engine::start("postgres").await else { return };
    log::set_logger(&RECORDS).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let address = engine.address();
    let options = PgConnectOptions::new_without_pgpass().host(&address.ip().to_string()).port(address.port());
    let options = options.username("postgres").database("postgres");
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let without = records_of_work(&pool).await;
    for record in ["WARN sqlx::postgres::notice", "DEBUG sqlx::query", "INFO sqlx_log: of a library"] {
        assert!(without.iter().any(|line| line.starts_with(record)), "{record}: {without:#?}");
    }
    let store = PostgresStore::from_pool(&pool).await.unwrap();
    let request = Reserve::new(SequenceName::new("s").unwrap(), 1).create(Bounds::of::<u64>());
    store.reserve(&request).await.unwrap();
    assert_eq!(records_of_work(&pool).await, without);
}
