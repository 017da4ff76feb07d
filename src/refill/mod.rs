//! Keeping a sequence's stock filled: decisions, sizes, and the task that carries them out.
//!
//! - [`engine`]: every decision, as a synchronous state machine without clock, I/O or runtime.
//! - [`policy`]: how many ids to reserve and when, as arithmetic.
//! - [`driver`]: carries out the engine's commands on one sequence's stock and callers.
//! - [`actor`]: the one tokio task that feeds events to the drivers and takes their reserves to the store.
//! - `oracle`: what the engine promises, as a test that drives it with arbitrary events.
//!
//! The first three run in the same form under loom, in the simulation, in property tests and in production.

#[cfg(not(idmill_loom))]
pub(crate) mod actor;
pub(crate) mod driver;
pub(crate) mod engine;
#[cfg(all(any(test, fuzzing), not(idmill_loom)))]
pub(crate) mod oracle;
pub(crate) mod policy;
