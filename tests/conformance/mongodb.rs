//! MongoDB: FerretDB, behind the front that runs one command at a time.

use std::sync::Arc;

use idmill::conformance::{Endpoint, Suite};
use idmill::store::Store;
use idmill::store::mongodb::MongoStore;

use crate::engines::OnDemand;

pub(crate) fn suite() -> Suite {
    Suite::new("mongodb", |endpoint: Endpoint| async move {
        // Direct, since the server's own address would lead around the proxy.
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
