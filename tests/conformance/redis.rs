//! Redis as a store, and its window in front of the stores that need no engine of their own.

use std::sync::Arc;

use idmill::conformance::{Endpoint, Suite};
use idmill::store::Store;
use idmill::store::redis::RedisStore;

use crate::engines::OnDemand;

pub(crate) fn store() -> Suite {
    Suite::new("redis", |endpoint: Endpoint| async move {
        // With a timeout that a pause outlasts.
        let url = format!("redis://{}?timeout=2s", endpoint.address());
        Ok(Arc::new(RedisStore::open(&url).await?) as Arc<dyn Store>)
    })
    .engine(OnDemand::new("redis"))
}
