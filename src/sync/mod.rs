//! The one place from which shared-memory primitives are imported.
//!
//! Everything that threads share in this crate is built from what is exported here; `tests/facade.rs` checks
//! that. In production these are std, arc-swap, crossbeam, parking_lot, papaya and tokio. Under
//! `--cfg idmill_loom` they are stand-ins that the loom model checker sees through, so that the models in
//! `loom-tests/` run over the very same source. A private cfg, since dependencies react to the bare `loom`.
//!
//! A stand-in must not synchronise more than the real thing promises, or it hides ordering bugs;
//! each says what it was compared with. What loom cannot see inside (the real `ArcSwap`) is covered
//! by Miri and ThreadSanitizer.

#[cfg(idmill_loom)]
mod model;
#[cfg(not(idmill_loom))]
mod real;

#[cfg(idmill_loom)]
pub(crate) use model::*;
#[cfg(not(idmill_loom))]
pub(crate) use real::*;

/// The same in both worlds: its count decides when memory is freed, which safe code cannot get wrong,
/// and loom's own would make each clone one more step to explore. That `Arc`s reach other threads
/// properly is seen at what is in them.
pub(crate) use std::sync::{Arc, Weak};
