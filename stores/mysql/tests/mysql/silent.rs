//! Dead connections that report no error.

use std::sync::Arc;

use idmill_conformance::Proxy;
use idmill_mysql::MysqlStore;
use idmill_testing::engines::silence::silent_reply_is_an_unknown_outcome;

use crate::{server, url};

#[tokio::test]
async fn silent_connections_cost_one_unknown_outcome_in_total() {
    let Some(engine) = server().await else { return };
    let proxy = Proxy::start(engine.address()).await.unwrap();
    let store = MysqlStore::open(&url(proxy.address(), "silent", "&timeout=10s")).await.unwrap();
    silent_reply_is_an_unknown_outcome(Arc::new(store), &proxy).await;
}
