//! Servers that become unreachable.

use super::*;

/// Connections that broke while they were idle are detected before a statement is sent on them.
#[tokio::test]
async fn restarted_server_is_used_immediately() {
    let Some(engine) = Engine::start(ENGINE).await else { return };
    let address = engine.address();
    let store = MysqlStore::open(&url(address, "t", "&timeout=20s")).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    engine.kill();
    // The attempt also gives the driver time to detect the closed connection: until then, the outcome would
    // be unknown.
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(refused(&store, "s", &address.to_string()).await, ErrorKind::Unavailable);
    engine.restart().await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
    // During the second outage, no call is made.
    engine.kill();
    engine.restart().await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (21, 10));
}

/// A primary that has become a replica: nothing is taken, and the connection is not reused.
#[tokio::test]
async fn a_read_only_server_is_left() {
    let Some(engine) = Engine::start(ENGINE).await else { return };
    let address = engine.address();
    let mut root = root(address).await;
    run(&mut root, &["CREATE USER app@'127.0.0.1'", "GRANT ALL ON ids.* TO app@'127.0.0.1'"]).await;
    let store = MysqlStore::open(&format!("mysql://app@{address}/ids")).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let connected = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'";
    let before: u64 = one(&mut root, connected).await;
    run(&mut root, &["SET GLOBAL read_only = 1"]).await;
    assert_eq!(refused(&store, "s", "write to the primary").await, ErrorKind::Unavailable);
    until(&mut root, connected, before - 1).await;
    assert_eq!(inspect(&store, "s").await.next, Some(11));
    run(&mut root, &["SET GLOBAL read_only = 0"]).await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}
