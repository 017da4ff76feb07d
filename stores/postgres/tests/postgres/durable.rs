//! Ids that a crash or another transaction's rollback would revert are not used.

use std::sync::Arc;

use idmill::ErrorKind;
use idmill::store::Store;
#[cfg(feature = "deadpool")]
use idmill_postgres::deadpool;
use idmill_postgres::driver::Config;
use idmill_postgres::{Keeps, Mode, PostgresOptions, PostgresStore, Storage};
use idmill_testing::engines::Engine;

use crate::{client, ids, open, request, reserve, schemes, server, until_set, url};

/// Changes a setting, and waits until new sessions have it.
async fn set(engine: &Engine, setting: &str, value: &str) {
    let admin = client(engine).await;
    admin.batch_execute(&format!("ALTER SYSTEM SET {setting} = {value}")).await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until_set(engine, setting, value).await;
}

/// Nothing is granted once a setting is off, even on a connection that has read it as on.
#[tokio::test]
async fn settings_that_change_while_it_runs_are_noticed() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    let native = schemes().open(&url(&engine, "&sequences=native")).await.unwrap();
    let both: [&dyn Store; 2] = [&store, &*native];
    for setting in ["fsync", "full_page_writes"] {
        for store in both {
            reserve(store, "s", 1).await.unwrap();
        }
        set(&engine, setting, "off").await;
        let mut errors = vec![store.reserve_many(&[request("s", 1), request("s2", 1)]).await.remove(0)];
        for store in both {
            // A session reloads settings between statements: the first may still use the old value.
            let _ = store.inspect(&crate::name("s")).await.unwrap();
            errors.push(reserve(store, "s", 1).await);
        }
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.to_string().contains(&format!("set {setting} = on")), "{error}");
            assert!(error.to_string().contains("durability=trust"), "{error}");
        }
        set(&engine, setting, "on").await;
        for store in both {
            let _ = store.inspect(&crate::name("s")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_database_of_tests_may_do_without() {
    let Some(engine) = server().await else { return };
    set(&engine, "fsync", "off").await;
    for options in ["&durability=trust", "&durability=trust&sequences=native"] {
        let store = schemes().open(&url(&engine, options)).await.unwrap();
        assert_eq!(ids(reserve(&*store, "s", 3).await.unwrap().range).0, 1);
        reserve(&*store, "s", 3).await.unwrap();
    }
    assert_eq!(PostgresStore::open(&url(&engine, "")).await.unwrap_err().kind(), ErrorKind::Conflict);
}

/// testcontainers starts PostgreSQL with `fsync=off`.
#[tokio::test]
async fn callers_connections_are_used_with_the_options() {
    let Some(engine) = server().await else { return };
    set(&engine, "fsync", "off").await;
    let (admin, address) = (client(&engine).await, engine.address());
    admin.batch_execute("CREATE SCHEMA mine").await.unwrap();
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port()).user("postgres").dbname("postgres");
    let options = PostgresOptions::default().keeps(Keeps::Trust).schema("mine");
    let given = Arc::new(client(&engine).await);
    let over_client = options.clone().table("over_client");
    let mut stores = vec![
        PostgresStore::from_client(given.clone(), over_client.clone()).await.unwrap(),
        PostgresStore::from_config(config.clone(), options.clone().table("over_config")).await.unwrap(),
    ];
    #[cfg(feature = "deadpool")]
    {
        let pool = deadpool::Manager::new(config.clone(), idmill_postgres::driver::NoTls);
        let pool = deadpool::Pool::builder(pool).build().unwrap();
        stores.push(PostgresStore::from_pool(pool, options.clone().table("over_pool")).await.unwrap());
    }
    for store in &stores {
        assert_eq!(ids(reserve(store, "s", 3).await.unwrap().range), (1, 3));
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'mine' AND tablename LIKE 'over_%'";
    let tables: i64 = admin.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(usize::try_from(tables).unwrap(), stores.len());
    let looking = PostgresStore::from_client(given.clone(), over_client.mode(Mode::ReadOnly)).await.unwrap();
    assert_eq!(reserve(&looking, "s", 1).await.unwrap_err().kind(), ErrorKind::Denied);
    for (options, kind) in [
        (PostgresOptions::default(), ErrorKind::Conflict), // fsync
        (options.clone().sequences(Storage::Native), ErrorKind::InvalidInput),
        (options.clone().table("a-b"), ErrorKind::InvalidInput),
        (options.mode(Mode::ReadWrite).table("missing"), ErrorKind::NotFound),
    ] {
        let error = PostgresStore::from_client(given.clone(), options).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// Even if the table itself is logged, a crash empties its unlogged parts, and their sequences would begin
/// again.
#[tokio::test]
async fn parts_of_a_table_that_a_crash_empties_are_refused() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    let admin = client(&engine).await;
    let parted = "CREATE TABLE parted (LIKE idmill_sequences INCLUDING ALL) PARTITION BY HASH (name); \
                  CREATE TABLE one PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0); \
                  CREATE TABLE two PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1) PARTITION BY HASH (name); \
                  CREATE UNLOGGED TABLE three PARTITION OF two FOR VALUES WITH (MODULUS 1, REMAINDER 0); \
                  CREATE UNLOGGED TABLE heir () INHERITS (idmill_sequences)";
    admin.batch_execute(parted).await.unwrap();
    for (options, part) in [("&table=parted", "three"), ("", "heir")] {
        let error = PostgresStore::open(&url(&engine, options)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains(&format!("ALTER TABLE {part} SET LOGGED")), "{error}");
    }
    admin.batch_execute("ALTER TABLE three SET LOGGED; ALTER TABLE heir SET LOGGED").await.unwrap();
    for options in ["&table=parted", ""] {
        reserve(&PostgresStore::open(&url(&engine, options)).await.unwrap(), "s", 1).await.unwrap();
    }
}

/// Ids that are reserved in a caller's transaction are reverted with it.
#[tokio::test]
async fn a_client_in_a_transaction_is_refused() {
    let Some(engine) = server().await else { return };
    let client = Arc::new(client(&engine).await);
    client.batch_execute("BEGIN").await.unwrap();
    let error = PostgresStore::from_client(client.clone(), PostgresOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("is in a transaction"), "{error}");
    client.batch_execute("ROLLBACK").await.unwrap();
    let store = PostgresStore::from_client(client.clone(), PostgresOptions::default()).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (1, 3));
    for end in ["ROLLBACK", "COMMIT"] {
        client.batch_execute("BEGIN").await.unwrap();
        for error in [
            reserve(&store, "s", 3).await.unwrap_err(),
            reserve(&store, "new", 3).await.unwrap_err(),
            store.reserve_many(&[request("s", 1), request("new", 1)]).await.remove(0).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
        client.batch_execute(end).await.unwrap();
    }
    // The committed reserves are a gap.
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (8, 10));
}
