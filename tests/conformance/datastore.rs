//! Datastore, as both of Google's emulators have it.

use std::sync::Arc;
use std::time::Duration;

use idmill::conformance::{Endpoint, Suite, Timeouts};
use idmill::store::Store;
use idmill::store::datastore::{DatastoreOptions, DatastoreStore};

use crate::engines::OnDemand;

/// Two thirds of it are longer than an emulator's first answer takes on a busy machine.
const PAUSE: Duration = Duration::from_secs(7);

/// The emulator of Datastore itself. It writes to its file half a minute after the fact: a
/// SIGKILL loses what came last.
pub(crate) fn suite() -> Suite {
    on("datastore")
}

/// The emulator of Firestore in Datastore mode, which is other code, and keeps nothing.
pub(crate) fn firestore() -> Suite {
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
