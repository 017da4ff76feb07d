//! Keeps a sequence's stock filled: decisions, sizes, and the task that carries them out.
//!
//! - [`engine`]: all decisions, as a synchronous state machine without clock, I/O or runtime.
//! - [`event`]: the engine's input and output.
//! - [`queue`]: the waiting callers, in order, and the ids that are held for them.
//! - [`retry`]: the last failure, and the time of the next attempt.
//! - [`policy`]: how many ids to reserve and when, as arithmetic.
//! - [`pending_give_back`]: ids that may go back to the store.
//! - [`driver`]: carries out the engine's decisions on one sequence's stock and callers.
//! - [`actor`]: the one tokio task that passes events to the drivers and their reserves to the store.
//! - [`round_trip`]: store calls in flight, in separate tasks.
//! - `oracle`: the engine's guarantees, as a test that drives it with arbitrary events.
//!
//! All modules up to [`driver`] run in the same form under loom, in the simulation, in property tests and in
//! production.

pub(crate) mod actor;
pub(crate) mod driver;
pub(crate) mod engine;
pub(crate) mod event;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/engine/oracle.rs"] // not in the published package
pub(crate) mod oracle;
pub(crate) mod pending_give_back;
pub(crate) mod policy;
pub(crate) mod queue;
mod retry;
pub(crate) mod round_trip;
