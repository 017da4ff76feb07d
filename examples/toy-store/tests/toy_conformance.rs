//! The suite that every store must pass: several processes, kills, and forbidden results.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite};
use toy_store::ToyStore;

fn main() {
    idmill_conformance::main([Suite::new("toy", |endpoint: Endpoint| async move {
        let store: ToyStore = format!("toy:{}/ids.toy", endpoint.dir().display()).parse()?;
        Ok(Arc::new(store) as Arc<dyn Store>)
    })])
}
