//! Keeping a sequence's stock filled: decisions, sizes, and the task that carries them out.
//!
//! - [`engine`]: every decision, as a synchronous state machine without clock, I/O or runtime.
//! - [`event`]: what the engine is told, and what it decides.
//! - [`queue`]: the callers that wait, in turn, and the ids that are held for them.
//! - [`retry`]: what went wrong last, and when the next attempt is made.
//! - [`policy`]: how many ids to reserve and when, as arithmetic.
//! - [`rest`]: ids that may go back to the store.
//! - [`driver`]: carries out the engine's decisions on one sequence's stock and callers.
//! - [`actor`]: the one tokio task that feeds events to the drivers and takes their reserves to the store.
//! - [`round_trip`]: what the store was asked and has not answered, in tasks of their own.
//! - `oracle`: what the engine promises, as a test that drives it with arbitrary events.
//!
//! The first eight run in the same form under loom, in the simulation, in property tests and in production.

pub(crate) mod actor;
pub(crate) mod driver;
pub(crate) mod engine;
pub(crate) mod event;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/engine/oracle.rs"] // not in the published package
pub(crate) mod oracle;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod rest;
mod retry;
pub(crate) mod round_trip;
