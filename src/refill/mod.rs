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

use std::time::Duration;

use crate::error::{Error, Operation, Result};
use crate::id::Id;
use crate::segment::MAX_LEN;
use crate::store::Bounds;

pub(crate) use policy::{Adaptive, Sizing};

/// What holds between ids that are handed out: the caller picks one, and the rest of the system serves it.
///
/// In every order no id is ever handed out twice. See the guide "choose your guarantee" in `docs/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// An id asked for after another was returned, *anywhere*, is larger. Costs one round trip to the store, which
    /// all callers that wait at that moment share; nothing is prefetched, and `try_next` is always dry.
    Global,
    /// Ids grow within the process: asked for after another was returned, in any thread, an id is larger. Costs
    /// nanoseconds.
    #[default]
    Process,
    /// Ids grow per handle, and per thread for callers of the allocator itself. Costs about a plain increment, and its
    /// throughput grows with cores.
    Thread,
}

/// How one sequence is to be served. Fixed when the sequence is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) order: Order,
    pub(crate) sizing: Sizing,
    /// The bounds to create the sequence with.
    pub(crate) bounds: Bounds,
    /// What the caller's type can hold.
    pub(crate) floor: u64,
    pub(crate) ceiling: u64,
    /// How long a caller waits at most, unless it says otherwise.
    pub(crate) patience: Duration,
    /// How many ids a thread takes for itself at a time under [`Order::Thread`].
    pub(crate) lease: u64,
    /// Fixes the jitter of retries, for simulations that are to repeat.
    pub(crate) seed: Option<u64>,
}

impl Settings {
    pub(crate) fn of<T: Id>() -> Self {
        let bounds = Bounds::of::<T>();
        Self {
            order: Order::default(),
            sizing: Sizing::Adaptive(Adaptive::for_bounds(bounds)),
            bounds,
            floor: T::MIN,
            ceiling: T::MAX,
            patience: Duration::from_secs(30),
            lease: 64,
            seed: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::invalid(message).during(Operation::Configure));
        let (start, max) = (self.bounds.start(), self.bounds.max());
        if start < self.floor || max > self.ceiling {
            let (floor, ceiling) = (self.floor, self.ceiling);
            return invalid(format!(
                "bounds {start}..={max} do not fit the id type, which holds {floor}..={ceiling}"
            ));
        }
        if self.lease == 0 || self.lease > MAX_LEN {
            return invalid(format!("a lease of {} ids; it must be 1 to 2^48", self.lease));
        }
        self.sizing.check().map_err(|message| Error::invalid(message).during(Operation::Configure))
    }
}
