//! etcd with one member: the current version and the oldest supported one.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite};
use idmill_etcd::{EtcdOptions, EtcdStore};
use idmill_testing::engines::OnDemand;

fn suite() -> Suite {
    over("etcd")
}

fn oldest() -> Suite {
    over("etcd34")
}

fn over(engine: &'static str) -> Suite {
    Suite::new(engine, |endpoint: Endpoint| async move {
        // A request may be resent, and both attempts must end within the suite's pauses.
        let options = EtcdOptions::new([endpoint.address().to_string()]).timeout(endpoint.timeout() / 2);
        let store: Arc<dyn Store> = Arc::new(EtcdStore::open_with(options).await?);
        Ok(store)
    })
    .engine(OnDemand::new(engine))
}

fn main() {
    idmill_conformance::main([suite(), oldest()])
}
