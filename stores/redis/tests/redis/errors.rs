//! Errors of a real server, and how the store classifies them.

use idmill::store::{Bounds, Reserve, Store};
use idmill::{ErrorKind, SequenceName};
use idmill_redis::RedisStore;
use idmill_testing::{eventually_blocking, holds};

use crate::server::{ask, start};

fn request() -> Reserve {
    let name = SequenceName::new("s").unwrap();
    Reserve::new(name, 1).create(Bounds::new(1, u64::MAX).unwrap())
}

/// Checks for each error: its kind, that nothing was reserved, and that the next reserve succeeds.
#[tokio::test]
async fn a_server_that_refuses_has_reserved_nothing() {
    let Some(engine) = start(&[]).await else { return };
    let store = RedisStore::open(&format!("redis://{}", engine.address())).await.unwrap();
    let states = [("maxmemory", "1", "0", "OOM"), ("min-replicas-to-write", "1", "0", "NOREPLICAS")];
    for (next, (key, bad, good, code)) in (1..).zip(states) {
        assert_eq!(ask(&engine, &["CONFIG", "SET", key, bad]), "+OK");
        let error = store.reserve(&request()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(code), "{error}");
        assert_eq!(ask(&engine, &["CONFIG", "SET", key, good]), "+OK");
        assert_eq!(store.reserve(&request()).await.unwrap().range.start(), next);
    }
}

#[tokio::test]
async fn a_user_that_may_not_is_denied_whatever_it_may_not() {
    let Some(engine) = start(&[]).await else { return };
    let granted = ["+@all", "+@all -hset", "+@all -info", "+@all -evalsha", "+@all -sadd"];
    for (keys, rights) in granted.map(|rights| ("~*", rights)).into_iter().chain([("~other", "+@all")]) {
        let mut words = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret7", keys];
        words.extend(rights.split(' '));
        assert_eq!(ask(&engine, &words), "+OK");
        let url = format!("redis://app:secret7@{}?prefix=p{}", engine.address(), fastrand::u32(..));
        let outcome = match RedisStore::open(&url).await {
            Ok(store) => store.reserve(&request()).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if (keys, rights) == ("~*", "+@all") {
            assert!(outcome.is_ok(), "{outcome:?}");
            continue;
        }
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{keys} {rights}: {error}");
        assert!(!format!("{error:?}").contains("secret7"));
    }
    // Without CONFIG the store cannot check durability; `durability=trust` skips the check.
    ask(&engine, &["ACL", "SETUSER", "app", "reset", "on", ">secret7", "~*", "+@all", "-config"]);
    let url = format!("redis://app:secret7@{}", engine.address());
    assert_eq!(RedisStore::open(&url).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let store = RedisStore::open(&format!("{url}?durability=trust")).await.unwrap();
    assert_eq!(store.reserve(&request()).await.unwrap().range.start(), 1);
}

/// A cluster of one node that serves no slot, then all slots.
#[tokio::test]
async fn a_node_of_a_cluster_serves_the_prefixes_in_its_slots() {
    let bus = idmill_conformance::free_port().to_string();
    let Some(engine) = start(&["--cluster-enabled", "yes", "--cluster-port", &bus]).await else { return };
    let store = RedisStore::open(&format!("redis://{}", engine.address())).await.unwrap();
    let error = store.reserve(&request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(ask(&engine, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "+OK");
    eventually_blocking("the cluster is up", || {
        let info = ask(&engine, &["CLUSTER", "INFO"]);
        holds(info.contains("cluster_state:ok"), info)
    });
    assert_eq!(store.reserve(&request()).await.unwrap().range.start(), 1, "both keys are in one slot");
    // Remove the slot of `{idmill}` from its node, so that no node serves it.
    let slot = ask(&engine, &["CLUSTER", "KEYSLOT", "{idmill}:names"]);
    ask(&engine, &["FLUSHALL"]);
    assert_eq!(ask(&engine, &["CLUSTER", "DELSLOTS", slot.trim_start_matches(':')]), "+OK");
    let error = store.reserve(&request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn server_other_than_redis_is_unavailable_and_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = RedisStore::open(&format!("redis://{address}?timeout=1s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    server.abort();
}
