//! What the callers of one sequence and the actor that refills it share.
//!
//! - [`segment`]: a range that is handed out from memory, by one `fetch_add` a draw.
//! - [`stock`]: the segments of a sequence in turn, and how they are taken away from everybody.
//! - [`parts`]: the stock with everything else there is of a sequence in this process, as data;
//!   [`state`]: what is done with it.
//! - [`block`], [`stripe`], [`stripes`], [`seat`]: what threads hold for themselves.
//! - [`mailbox`]: what callers send to the actor, and how it is woken; [`reply`], [`answer`]: the two ends of
//!   its answers.
//! - [`registry`]: the sequences of a process by name.
//! - [`seen`]: what the process has seen of a sequence, and what shows that the store has lost what it had
//!   committed.
//! - [`settings`], [`stats`], [`snapshot`], [`metrics`]: what was asked for, and what can be seen of it.
//! - [`clock`], [`time`]: what the actor and its callers reckon deadlines by; [`task`]: work that ends when
//!   nobody waits for it; [`process`]: whether this is a fork.
//!
//! Of the [store](crate::store) this knows the values alone, such as a grant; what asks the store is outside.

pub(crate) mod answer;
pub(crate) mod block;
pub(crate) mod clock;
pub(crate) mod mailbox;
#[cfg_attr(not(feature = "metrics"), path = "metrics/off.rs")]
pub(crate) mod metrics;
pub(crate) mod parts;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod reply;
pub(crate) mod seat;
pub(crate) mod seen;
pub(crate) mod segment;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod stock;
pub(crate) mod stripe;
pub(crate) mod stripes;
pub(crate) mod task;
pub(crate) mod time;
