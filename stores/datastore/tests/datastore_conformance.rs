//! Runs the conformance suite on both of Google's emulators.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite, Timeouts};
use idmill_datastore::{DatastoreOptions, DatastoreStore};
use idmill_testing::engines::OnDemand;

/// The store's timeout is two thirds of this pause, and must be longer than an emulator's first reply on a
/// busy machine.
const PAUSE: Duration = Duration::from_secs(7);

/// Tests the Datastore emulator, which writes its file half a minute late, so a SIGKILL loses the last
/// writes.
fn suite() -> Suite {
    on("datastore")
}

/// Tests the emulator of Firestore in Datastore mode, a different implementation that stores nothing on
/// disk.
fn firestore() -> Suite {
    on("firestore")
}

fn on(engine: &'static str) -> Suite {
    let connect = |endpoint: Endpoint| async move {
        let options = DatastoreOptions::new("conformance").emulator(endpoint.address().to_string());
        let store: Arc<dyn Store> =
            Arc::new(DatastoreStore::open_with(options.timeout(endpoint.timeout())).await?);
        Ok(store)
    };
    Suite::new(engine, connect)
        .engine(OnDemand::new(engine).forgetful())
        .timeouts(Timeouts::default().pause(PAUSE))
        .skip(
            "capabilities_are_coherent",
            "the durability declared is the service's, which emulators do not have",
        )
}

fn main() {
    idmill_conformance::main([suite(), firestore()])
}
