//! Servers, tables and pools that a store accepts or rejects.

use std::time::Duration;

use idmill_testing::engines::certificate::certify;

use super::*;

async fn cannot_open(url: &str, kind: ErrorKind, hint: &str) {
    let error = MysqlStore::open(url).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(hint), "{error}");
}

#[tokio::test]
async fn server_that_may_lose_commits_is_rejected() {
    let Some(engine) = Engine::start(ENGINE).await else { return };
    let address = engine.address();
    let store = open(address, "t").await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let mut root = root(address).await;
    for value in [0, 2] {
        run(&mut root, &[&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}")]).await;
        cannot_open(&url(address, "t", ""), ErrorKind::Unsupported, "innodb_flush_log_at_trx_commit is")
            .await;
        let pool = pool(address, |options| options);
        let error = MysqlStore::from_pool(&pool, MysqlOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        // Reads do not need the server to be durable.
        assert!(MysqlStore::open(&url(address, "t", "&mode=ro")).await.is_ok());
    }
    // An open store detects the setting on its next connection, as after a failover.
    let mine = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'";
    for id in root.query::<u64, _>(mine).await.unwrap() {
        // Connections of the stores above may be closing.
        let _ = root.query_drop(format!("KILL {id}")).await;
    }
    until(&mut root, &mine.replace("id FROM", "COUNT(*) FROM"), 0).await;
    assert_eq!(refused(&store, "s", "set it to 1").await, ErrorKind::Unsupported);
    run(&mut root, &["SET GLOBAL innodb_flush_log_at_trx_commit = 1"]).await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}

#[tokio::test]
async fn a_binary_log_that_is_not_synced_is_refused() {
    let Some(engine) = Engine::down(ENGINE) else { return };
    std::fs::write(engine.dir().join("extra.cnf"), "[mysqld]\nlog_bin\nsync_binlog = 0\n").unwrap();
    engine.restart().await;
    let address = engine.address();
    cannot_open(&url(address, "t", ""), ErrorKind::Unsupported, "sync_binlog is 0: set it to 1").await;
    run(&mut root(address).await, &["SET GLOBAL sync_binlog = 1"]).await;
    assert_eq!(reserve(&open(address, "t").await, "s", 10).await.unwrap(), (1, 10));
}

/// rustls has two crypto providers and no default if the features of all stores are on. The driver would
/// panic without an explicit default.
#[tokio::test]
async fn connection_is_encrypted_and_certificates_are_checked() {
    let Some(engine) = Engine::down(ENGINE) else { return };
    let (certificate, key) = certify(engine.dir());
    let options = format!("[mysqld]\nssl_cert = {certificate}\nssl_key = {key}\n");
    std::fs::write(engine.dir().join("extra.cnf"), options).unwrap();
    engine.restart().await;
    let address = engine.address();

    let encrypted = url(address, "t", &format!("&tls=true&ca={certificate}"));
    assert_eq!(reserve(&MysqlStore::open(&encrypted).await.unwrap(), "s", 10).await.unwrap(), (1, 10));
    let pool = MysqlOptions::parse(&encrypted).unwrap().pool().unwrap();
    let status = "SHOW STATUS LIKE 'Ssl_version'";
    let (_, version) = one::<(String, String)>(&mut pool.get_conn().await.unwrap(), status).await;
    assert!(version.starts_with("TLSv1."), "{version}");

    let unknown = url(address, "t", "&tls=true");
    cannot_open(&unknown, ErrorKind::Denied, "ca=FILE").await;
    let other = encrypted.replace("127.0.0.1", "localhost");
    cannot_open(&other, ErrorKind::Denied, "certificate").await;
}

#[tokio::test]
async fn a_table_of_another_kind_is_refused() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    open(address, "good").await;
    let mut root = root(address).await;
    let made = [
        "CREATE TABLE volatile_one LIKE good",
        "ALTER TABLE volatile_one ENGINE = MyISAM",
        "CREATE VIEW a_view AS SELECT * FROM good",
        "CREATE TABLE other (name VARCHAR(200) PRIMARY KEY, next INT)",
        "CREATE TABLE keyless AS SELECT * FROM good",
    ];
    run(&mut root, &made).await;
    cannot_open(&url(address, "volatile_one", ""), ErrorKind::Unsupported, "ENGINE = InnoDB").await;
    cannot_open(&url(address, "a_view", ""), ErrorKind::Unsupported, "as for a view").await;
    cannot_open(&url(address, "other", ""), ErrorKind::Conflict, "name varchar, next int").await;
    cannot_open(&url(address, "keyless", ""), ErrorKind::Conflict, "table=NAME").await;
}

#[tokio::test]
async fn callers_pool_is_used_with_the_options() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| options);
    let options = MysqlOptions::default().table("over_pool");
    let store = MysqlStore::from_pool(&pool, options.clone()).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let looking = MysqlStore::from_pool(&pool, options.mode(idmill_mysql::Mode::ReadOnly)).await.unwrap();
    assert_eq!(inspect(&looking, "s").await.next, Some(11));
    assert_eq!(refused(&looking, "s", "read-only").await, ErrorKind::Denied);
    let options = MysqlOptions::default().timeout(Duration::ZERO);
    let error = MysqlStore::from_pool(&pool, options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[tokio::test]
async fn unsafe_pool_settings_are_rejected_before_a_write() {
    let Some(engine) = server().await else { return };
    let store = open(engine.address(), "pools").await;
    reserve(&store, "s", 10).await.unwrap();
    let open_over = async |pool: &Pool| {
        MysqlStore::from_pool(pool, MysqlOptions::default().table("pools")).await.unwrap()
    };
    let manual = pool(engine.address(), |options| options.setup(vec!["SET autocommit = 0"]));
    assert_eq!(refused(&open_over(&manual).await, "s", "autocommit=0").await, ErrorKind::Unsupported);
    let begun = pool(engine.address(), |options| options.setup(vec!["START TRANSACTION"]));
    assert_eq!(refused(&open_over(&begun).await, "s", "open transaction").await, ErrorKind::Unsupported);
    let found = pool(engine.address(), |options| options.client_found_rows(true));
    assert_eq!(refused(&open_over(&found).await, "s", "client_found_rows").await, ErrorKind::Unsupported);
    let nowhere = pool(engine.address(), |options| options.db_name(None::<String>));
    let error = MysqlStore::from_pool(&nowhere, MysqlOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(inspect(&store, "s").await.next, Some(11));
}

/// A `USE` on a connection of the pool does not lead the store to a table of the same name in
/// another database.
#[tokio::test]
async fn the_table_stays_that_of_the_database_it_was_opened_in() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| {
        let pool = idmill_mysql::driver::PoolOpts::default()
            .with_constraints(idmill_mysql::driver::PoolConstraints::new(1, 1).unwrap());
        options.pool_opts(pool)
    });
    let store = MysqlStore::from_pool(&pool, MysqlOptions::default().table("stays")).await.unwrap();
    reserve(&store, "s", 10).await.unwrap();
    let mut connection = pool.get_conn().await.unwrap();
    let elsewhere =
        ["CREATE DATABASE `else``where`", "USE `else``where`", "CREATE TABLE stays LIKE ids.stays"];
    run(&mut connection, &elsewhere).await;
    drop(connection);
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
    // Such a database name is valid in the URL too.
    let url = format!("mysql://root@{}/else%60where?table=stays", engine.address());
    assert_eq!(reserve(&MysqlStore::open(&url).await.unwrap(), "s", 10).await.unwrap(), (1, 10));
}

/// If several processes open one database for the first time, all find the table.
#[tokio::test]
async fn a_race_to_create_the_table_is_won_by_all() {
    let Some(engine) = server().await else { return };
    let url = url(engine.address(), "raced", "");
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(
                async move { reserve(&MysqlStore::open(&url).await.unwrap(), "s", 1).await.unwrap().0 },
            )
        })
        .collect();
    let mut ids = Vec::new();
    for opened in opening {
        ids.push(opened.await.unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=8).collect::<Vec<_>>());
}
