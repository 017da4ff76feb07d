//! All sequences of one store that a process uses.

mod administration;
mod builder;
mod health;
mod max_age;
mod open_all;
mod probe;
mod runtimes;
mod start;

use std::fmt;
use std::time::Duration;

use crate::allocator::Shared;
use crate::blocking::{Blocking, block_on_reply};
use crate::error::Result;
use crate::id::Id;
use crate::state::mailbox::Ending;
#[cfg(feature = "metrics")]
use crate::state::metrics;
use crate::store::Store;
use crate::sync::Arc;

use probe::Probe;

pub use administration::Admin;
pub use builder::SequenceBuilder;
pub use health::{HealthReport, Trouble};
pub use probe::is_answer;
pub use start::SequencesBuilder;

/// How much longer than the close timeout `close` waits for a runtime that does not run.
const CLOSE_MARGIN: Duration = Duration::from_secs(10);

/// The sequences of one store, by name, with one refill actor for all of them.
///
/// Cheap to clone. The actor ends when the last clone and the last allocator are dropped.
/// [`close`](Self::close) ends it immediately, and waits until it has ended.
#[derive(Clone)]
pub struct Sequences {
    shared: Arc<Shared>,
    /// Reads of the store while a sequence fails.
    probe: Arc<Probe>,
}

impl Sequences {
    /// Returns a builder for the sequence of this name. Add settings and open it, or `.await` it for the
    /// defaults. See [`SequenceBuilder`].
    pub fn sequence<T: Id>(&self, name: impl AsRef<str>) -> SequenceBuilder<T> {
        SequenceBuilder::new(self.shared.clone(), name.as_ref())
    }

    /// Returns the store itself, for administration.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns the number of sequences that are open in this process.
    pub fn len(&self) -> usize {
        self.shared.registry.len()
    }

    /// Returns whether no sequence is open in this process.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records the metrics of every open sequence. Call it before each export; metrics are also recorded at
    /// every refill. Metric names begin with `idmill_`, and the metrics of sequences have the label
    /// `sequence`. At most 1,000 sequences have series of their own: sequences in trouble, then the busiest.
    /// All others share the series of `sequence="(others)"`.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn record_metrics(&self) {
        metrics::describe();
        metrics::record_all(&self.shared.registry.cores(), self.shared.clock.now());
    }

    /// Closes all allocators: waiting and later calls fail with [`ErrorKind::Closed`]. The last range in
    /// memory goes back to a store that [can take it](crate::store::Capabilities::gives_back), if no later
    /// ids are reserved; the next reserve gets the returned ids. All other ids become a gap: earlier ranges
    /// in memory, ids held by blocks and thread blocks, a refill in flight, and ids that could not be given
    /// back within the [close timeout](SequencesBuilder::close_timeout).
    ///
    /// Returns when the actor has ended, or immediately in a forked process. Cancelling this call does not
    /// undo it. If you drop the last clone, allocator and handle instead, the same happens in the background,
    /// while the runtime still runs.
    ///
    /// [`ErrorKind::Closed`]: crate::ErrorKind::Closed
    pub async fn close(&self) {
        // The actor runs in the parent process: it is not affected, and cannot be awaited here.
        if self.shared.mailbox.is_forked() {
            return;
        }
        self.shared.mailbox.close(Ending::Asked);
        let mut ended = self.shared.ended.clone();
        // Nothing is ever sent on this channel: an error means that the sender was dropped with the actor.
        while ended.changed().await.is_ok() {}
    }

    /// Returns a view for threads outside any async runtime.
    pub fn blocking(&self) -> Blocking<&Self> {
        Blocking { of: self }
    }
}

impl Blocking<&Sequences> {
    /// Closes all allocators. The sequences are closed even if this fails: an error means that this call did
    /// not wait until the remaining ids had been given back.
    ///
    /// # Errors
    /// [`Deadline`](crate::ErrorKind::Deadline) if the refills' runtime does not run for 10 s longer than the
    /// [close timeout](crate::SequencesBuilder::close_timeout);
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if this is the only thread that drives the refills.
    pub fn close(&self) -> Result<()> {
        self.of.shared.mailbox.close(Ending::Asked);
        let limit = self.of.shared.close_timeout.saturating_add(CLOSE_MARGIN);
        let ended = async {
            self.of.close().await;
            Ok(())
        };
        block_on_reply(&self.of.shared.runtime, "`close`", ended, limit)
    }
}

impl fmt::Debug for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequences").field("store", &self.shared.store).finish_non_exhaustive()
    }
}
