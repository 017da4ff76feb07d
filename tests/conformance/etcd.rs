//! etcd, one member: as it is now, and the oldest that is taken.

use std::sync::Arc;
use std::time::Duration;

use idmill::conformance::{Endpoint, Suite};
use idmill::store::Store;
use idmill::store::etcd::{EtcdOptions, EtcdStore};

use crate::engines::OnDemand;

/// With the one time that it may be sent again, shorter than the suite's pauses.
const TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn suite() -> Suite {
    over("etcd")
}

pub(crate) fn oldest() -> Suite {
    over("etcd34")
}

fn over(engine: &'static str) -> Suite {
    Suite::new(engine, |endpoint: Endpoint| async move {
        let options = EtcdOptions::new([endpoint.address().to_string()]).timeout(TIMEOUT);
        let store: Arc<dyn Store> = Arc::new(EtcdStore::open_with(options).await?);
        Ok(store)
    })
    .engine(OnDemand::new(engine))
}
