//! Runs the conformance suite on FerretDB, behind the proxy that runs one command at a time.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite};
use idmill_mongodb::MongoStore;
use idmill_testing::engines::OnDemand;

fn suite() -> Suite {
    Suite::new("mongodb", |endpoint: Endpoint| async move {
        // Use a direct connection, because the address that the server announces would bypass the proxy.
        let url = format!(
            "mongodb://{}/suite?directConnection=true&timeout={}ms",
            endpoint.address(),
            endpoint.timeout().as_millis()
        );
        let store: Arc<dyn Store> = Arc::new(MongoStore::open(&url).await?);
        Ok(store)
    })
    .engine(OnDemand::new("ferretdb"))
    .largest_id(i64::MAX.cast_unsigned())
}

fn main() {
    idmill_conformance::main([suite()])
}
