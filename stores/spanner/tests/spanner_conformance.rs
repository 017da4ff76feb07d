//! Runs the conformance suite on the Spanner emulator, which keeps all data in memory.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite};
use idmill_spanner::{SpannerOptions, SpannerStore};
use idmill_testing::engines::OnDemand;

fn suite() -> Suite {
    Suite::new("spanner", |endpoint: Endpoint| async move {
        let options = SpannerOptions::new("projects/test/instances/test/databases/test");
        let options = options.emulator(endpoint.address().to_string());
        let store: Arc<dyn Store> = Arc::new(SpannerStore::open_with(options).await?);
        Ok(store)
    })
    .engine(OnDemand::new("spanner").forgetful())
    .skip("capabilities_are_coherent", "it is durable in the cloud, but not over the emulator")
}

fn main() {
    idmill_conformance::main([suite()])
}
