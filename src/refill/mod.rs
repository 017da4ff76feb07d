//! Keeps a sequence's stock filled: decisions, sizes, and the task that carries them out.
//!
//! - [`engine`]: all decisions, as a synchronous state machine without clock, I/O or runtime.
//! - [`driver`]: carries out the engine's decisions on one sequence's stock and callers.
//! - [`actor`]: the one tokio task that passes events to the drivers and their reserves to the store.
//! - [`round_trip`]: store calls in flight, in separate tasks.
//! - `oracle`: the engine's guarantees, as a test that drives it with arbitrary events.
//!
//! The engine and the driver run in the same form under loom, in the simulation, in property tests and in
//! production.

pub(crate) mod actor;
pub(crate) mod driver;
pub(crate) mod engine;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/engine/oracle.rs"] // not in the published package
pub(crate) mod oracle;
pub(crate) mod round_trip;
