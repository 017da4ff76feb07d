//! Health of the open sequences, for readiness probes.

use std::fmt;
use std::time::Duration;

use super::Sequences;
use crate::error::{Error, ErrorKind};
use crate::name::SequenceName;
use crate::sequence::parts::Core;
use crate::sequence::snapshot::{Health, Snapshot};
use crate::sync::Arc;

/// The worst health of all open sequences, and the sequences that are not fully served. Returned by
/// [`Sequences::health`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthReport {
    /// The worst health of all open sequences. [`Health::Ended`] after the sequences were closed;
    /// [`Health::Serving`] while none is open.
    pub health: Health,
    /// How many sequences are open in this process.
    pub sequences: usize,
    /// All sequences that are not [`Health::Serving`], sorted by health, worst first, then by name.
    pub troubles: Vec<Trouble>,
}

/// A sequence that is not fully served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trouble {
    /// The sequence's name.
    pub name: SequenceName,
    /// The sequence's health.
    pub health: Health,
    /// The last reserve's error, or why the sequence ended.
    pub error: Error,
    /// Time until memory is empty without the store, at the current rate; `None` while that rate is 0.
    pub time_to_empty: Option<Duration>,
    /// How long ago the store last granted ids; `None` before the first grant.
    pub since_grant: Option<Duration>,
}

impl HealthReport {
    /// Returns whether calls can still get ids: every open sequence is [`Health::Serving`] or
    /// [`Health::Failing`].
    pub fn is_ready(&self) -> bool {
        self.health >= Health::Failing
    }
}

/// One line for a log or the body of a probe's response, with the error of each sequence in trouble.
impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = if self.is_ready() { "ready" } else { "not ready" };
        write!(f, "{ready}: {} sequences, {} in trouble", self.sequences, self.troubles.len())?;
        self.troubles.iter().try_for_each(|trouble| write!(f, "; {trouble}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {} ({})", self.name, self.health, self.error)
    }
}

impl Sequences {
    /// Returns the worst health of all open sequences, and the error of each one in trouble. For readiness
    /// probes.
    ///
    /// It reads counters and never waits for the store. A sequence without reserves counts as serving. For a
    /// sequence that has no ids because the store failed, this starts another attempt, as
    /// [`try_next`](crate::Allocator::try_next) does: so a service that gets no traffic because it is not
    /// ready becomes ready when the store is reachable again. For an exhausted sequence, this starts an
    /// attempt at most every 30 s, but not under `Order::Global`. The sequence is [`Health::Ended`] until a
    /// reserve has another outcome.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
    /// let ids = idmill::Sequences::new(idmill::store::MemoryStore::new())?;
    /// let orders = ids.sequence::<u64>("orders").await?;
    /// orders.warm(1).await?;
    /// let report = ids.health();
    /// assert!(report.is_ready(), "{report}");
    /// # Ok(()) }
    /// ```
    pub fn health(&self) -> HealthReport {
        let (cores, now) = (self.shared.registry.cores(), self.shared.clock.now());
        let mut troubles: Vec<_> = cores.iter().filter_map(|core| trouble(core, now)).collect();
        troubles.sort_by(|a, b| (a.health, &a.name).cmp(&(b.health, &b.name)));
        let closed = self.shared.mailbox.is_closed().then_some(Health::Ended);
        let worst = closed.or_else(|| troubles.first().map(|trouble| trouble.health));
        HealthReport { health: worst.unwrap_or(Health::Serving), sequences: cores.len(), troubles }
    }
}

fn trouble(core: &Arc<Core>, now: Duration) -> Option<Trouble> {
    let snapshot = Snapshot::of(core, now);
    let health = snapshot.health();
    let error = match (health, snapshot.ended) {
        (Health::Serving, _) => return None,
        (Health::Ended, Some(ErrorKind::Closed)) => ErrorKind::Closed.into(),
        (_, reason) => core.last_failure().unwrap_or_else(|| reason.unwrap_or(ErrorKind::Empty).into()),
    };
    let is_doubted = health == Health::Ended && core.stock.ended().is_none();
    if health == Health::Empty || is_doubted {
        // Signals the actor; the error is not used.
        drop(core.refused(ErrorKind::Empty));
    }
    let Snapshot { time_to_empty, since_grant, .. } = snapshot;
    Some(Trouble { name: core.name.clone(), health, error, time_to_empty, since_grant })
}
