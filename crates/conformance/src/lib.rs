//! The suite that every store of [`idmill`] must pass, including third-party stores.
//!
//! One builder defines how to connect to the store and how to start its engine, if it has one. The suite then
//! runs every [trial](trials) from several tasks and several real processes. The suite kills and pauses the
//! engine, cuts and garbles connections, and checks the grants.
//!
//! ```no_run
//! use idmill_conformance::Suite;
//! use idmill::store::{MemoryStore, Store};
//! use std::sync::Arc;
//!
//! // tests/conformance.rs, with `harness = false` in Cargo.toml
//! fn main() {
//!     let store = MemoryStore::new();
//!     Suite::new("memory", move |_endpoint| {
//!         let client: Arc<dyn Store> = Arc::new(store.clone());
//!         async move { Ok(client) }
//!     })
//!     .one_process("the memory of this process is not shared with others")
//!     .main()
//! }
//! ```
//!
//! `cargo test --test conformance -- --list` lists the trials. Arguments select the trials whose names
//! contain one of them. The [guide] explains what each trial proves.
//!
//! The suite's tools are available for a store's own tests: [`Daemon`] runs an engine that can be killed and
//! paused, and [`Proxy`] injects faults into the connections between the store and the engine.
//!
//! The suite's other processes run the test's own executable again, with a variable in the environment. The
//! executable's `main` builds the same suite, which then acts as a worker instead of running the trials.

#[cfg(not(unix))]
compile_error!("the suite sends signals to processes, so it requires Unix");

mod client;
mod context;
mod daemon;
mod dir;
mod draws;
mod engine;
#[cfg(doc)]
#[doc = include_str!("../GUIDE.md")]
pub mod guide {}
mod ledger;
mod load;
mod order;
mod outcome;
mod process;
pub mod proxy;
mod report;
mod run;
mod setup;
mod suite;
mod tracker;
mod trials;
mod worker;

pub use daemon::{Daemon, free_port};
pub use engine::Engine;
pub use proxy::Proxy;
pub use report::{Report, Verdict};
pub use run::main;
pub use setup::{Endpoint, Timeouts};
pub use suite::Suite;
pub use trials::{Trial, trials};
