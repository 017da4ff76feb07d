//! State that the callers of one sequence share with the actor that refills it.
//!
//! - [`segment`]: a range that is handed out from memory, by one `fetch_add` per draw.
//! - [`stock`]: the segments of a sequence, and their revocation.
//! - [`mod@core`]: all state of a sequence in this process; [`draw`]: draws from it.
//! - [`block`]: ids held by threads.
//! - [`mailbox`]: messages from callers to the actor; [`reply`]: both ends of its answers.
//! - [`registry`]: the sequences of a process by name.
//! - [`grant_history`]: the history of a sequence, and the detection of a store that has lost committed
//!   writes.
//! - [`settings`], [`stats`], [`snapshot`], [`metrics`]: the settings of a sequence, and its observable
//!   state.
//! - [`clock`], [`time`]: the clock for deadlines; [`task`]: work that is aborted when no caller waits for
//!   it; [`fork`]: detection of forks.
//!
//! This module only uses data types of the [store](crate::store), such as grants. Other modules call the
//! store.

pub(crate) mod block;
pub(crate) mod clock;
pub(crate) mod core;
pub(crate) mod draw;
pub(crate) mod fork;
pub(crate) mod grant_history;
pub(crate) mod mailbox;
#[cfg_attr(not(feature = "metrics"), path = "metrics/off.rs")]
pub(crate) mod metrics;
pub(crate) mod registry;
pub(crate) mod reply;
pub(crate) mod segment;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod stock;
pub(crate) mod task;
pub(crate) mod time;
pub(crate) mod want;
