//! Connections whose state a firewall on the path has dropped, so that their senders get no answer.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Reserve, Store};
use idmill::{ErrorKind, SequenceName};
use idmill_conformance::Proxy;

/// Idle connections become silent, as behind a firewall that dropped their state. Only one reserve may time
/// out, not one per connection.
pub async fn silent_reply_is_an_unknown_outcome(store: Arc<dyn Store>, proxy: &Proxy) {
    let request = |number: usize| {
        let name = SequenceName::new(&format!("s{number}")).unwrap();
        Reserve::new(name, 1).create(Bounds::of::<u64>())
    };
    let all: Vec<_> = (0..40)
        .map(|number| {
            let (store, request) = (store.clone(), request(number));
            tokio::spawn(async move { store.reserve(&request).await })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert!(proxy.connections() >= 4, "{}", proxy.connections());
    proxy.forget();
    let mut unknown = 0;
    for _ in 0..6 {
        if let Err(error) = store.reserve(&request(0)).await {
            assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
            unknown += 1;
        }
    }
    assert_eq!(unknown, 1);
    let listed = tokio::time::timeout(Duration::from_secs(60), store.list_all()).await;
    assert!(listed.expect("it ends").is_ok());
}
