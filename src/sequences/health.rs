//! What the readiness probe of a service asks.

use std::fmt;
use std::time::Duration;

use super::Sequences;
use crate::error::{Error, ErrorKind};
use crate::name::SequenceName;
use crate::sequence::parts::Core;
use crate::sequence::snapshot::{Health, Snapshot};
use crate::sync::Arc;

/// Whether every open sequence can serve, and which cannot: from [`Sequences::health`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthReport {
    /// The worst health of all. [`Health::Ended`] once the sequences were closed;
    /// [`Health::Serving`] while none is open.
    pub health: Health,
    /// How many sequences are open in this process.
    pub sequences: usize,
    /// Those that are not [`Health::Serving`], the worst first, and by name among equals.
    pub troubles: Vec<Trouble>,
}

/// A sequence that is not served as it should be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trouble {
    /// Which sequence.
    pub name: SequenceName,
    /// How it is served.
    pub health: Health,
    /// Why: the error of the last reserve that failed.
    pub error: Error,
    /// How long memory lasts without the store, at the present rate; `None` while nothing is drawn.
    pub time_to_dry: Option<Duration>,
    /// How long ago the store last granted ids; `None` before the first time.
    pub since_grant: Option<Duration>,
}

impl HealthReport {
    /// Returns whether every open sequence has ids to hand out: all are [`Health::Serving`], or
    /// [`Health::Failing`] with ids in memory that last for now.
    pub fn is_ready(&self) -> bool {
        self.health >= Health::Failing
    }
}

/// One line for a log, or for the body of a probe's answer. Each trouble has its reason.
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
    /// Returns whether every open sequence can serve, which cannot, and why: what a readiness probe asks.
    ///
    /// It reads counters and never waits for the store. A sequence that was never drawn from counts as
    /// serving. Of a sequence that has no ids because the store failed, it starts another attempt, as
    /// [`try_next`](crate::Allocator::try_next) does: a service that gets no traffic because it is not ready
    /// becomes ready when the store is back. So does a sequence that was exhausted, at most every 30 s: it
    /// is [`Health::Ended`] until the store grants again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
    /// let ids = idmill::Sequences::new(idmill::store::MemoryStore::new())?;
    /// let orders = ids.sequence::<u64>("orders").await?;
    /// orders.warm().await?;
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
        (_, reason) => core.last_failure().unwrap_or_else(|| reason.unwrap_or(ErrorKind::Dry).into()),
    };
    let is_doubted = health == Health::Ended && core.stock.ended().is_none();
    if health == Health::Dry || is_doubted {
        // A permit for the actor, and no error that anybody sees.
        drop(core.refused(ErrorKind::Dry));
    }
    let Snapshot { time_to_dry, since_grant, .. } = snapshot;
    Some(Trouble { name: core.name.clone(), health, error, time_to_dry, since_grant })
}
