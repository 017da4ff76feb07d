//! etcd, one member: as it is now, and the oldest that is taken.

use std::sync::Arc;

use idmill::conformance::{Endpoint, Suite};
use idmill::store::Store;
use idmill::store::etcd::{EtcdOptions, EtcdStore};

use crate::engines::OnDemand;

pub(crate) fn suite() -> Suite {
    over("etcd")
}

pub(crate) fn oldest() -> Suite {
    over("etcd34")
}

fn over(engine: &'static str) -> Suite {
    Suite::new(engine, |endpoint: Endpoint| async move {
        // It may be sent a second time, and both have to end within the suite's pauses.
        let options = EtcdOptions::new([endpoint.address().to_string()]).timeout(endpoint.timeout() / 2);
        let store: Arc<dyn Store> = Arc::new(EtcdStore::open_with(options).await?);
        Ok(store)
    })
    .engine(OnDemand::new(engine))
}
