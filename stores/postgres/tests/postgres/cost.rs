//! A reserve costs one round trip. Its statement stays prepared, so the server does not plan it again.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::Proxy;
use idmill_postgres::PostgresStore;
use parking_lot::Mutex;

use crate::{ids, name, request, reserve, server, url};

type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// Returns the number of requests that a call sends, and how many of them execute a prepared
/// statement.
async fn counted(sent: &Sent, call: impl Future<Output = ()>) -> (usize, usize) {
    sent.lock().clear();
    call.await;
    let sent = sent.lock();
    (sent.len(), sent.iter().filter(|bytes| bytes[5..].starts_with(b"EXECUTE idmill_")).count())
}

#[tokio::test]
async fn a_reserve_is_one_round_trip_and_is_kept_prepared() {
    let Some(engine) = server().await else { return };
    let (sent, direct) = (Sent::default(), engine.address().to_string());
    let seen = sent.clone();
    let proxy = Proxy::builder(engine.address()).requests(move |piece| {
        seen.lock().push(piece.bytes.clone());
        None
    });
    let proxy = proxy.start().await.unwrap();
    let url = url(&engine, "").replace(&direct, &proxy.address().to_string());
    let store = PostgresStore::open(&url).await.unwrap();
    // Reserve, read the missing row, check that the row is not hidden, create it.
    assert_eq!(counted(&sent, async { drop(reserve(&store, "s'\\", 1).await) }).await, (4, 0));
    // The second reserve is the last that is planned: the session reads the cluster's identifier and prepares
    // the statement.
    assert_eq!(counted(&sent, async { drop(reserve(&store, "s'\\", 1).await) }).await, (3, 0));
    for next in 3..=20 {
        let call = async { assert_eq!(ids(reserve(&store, "s'\\", 1).await.unwrap().range), (next, next)) };
        assert_eq!(counted(&sent, call).await, (1, 1));
    }
    let batch = [request("a'", 2), request("b\\", 2)];
    for _ in 0..4 {
        store.reserve_many(&batch).await;
    }
    let call = async {
        let granted = store.reserve_many(&batch).await;
        assert!(granted.iter().all(|grant| ids(grant.clone().unwrap().range) == (9, 10)), "{granted:?}");
    };
    assert_eq!(counted(&sent, call).await, (1, 1));
    assert_eq!(store.inspect(&name("s'\\")).await.unwrap().unwrap().next, Some(21));
}
