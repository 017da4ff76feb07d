//! Health of the open sequences, for readiness probes.

use std::fmt;
use std::time::Duration;

use super::Sequences;
use crate::error::{Error, ErrorKind, Operation, Status};
use crate::name::SequenceName;
use crate::state::core::Core;
use crate::state::mailbox::Mailbox;
use crate::state::settings::Sizing;
use crate::state::snapshot::{Health, Snapshot};
use crate::sync::Arc;

/// Ids in memory that last less than this while the store fails are running out: load balancers need some
/// time to redirect clients. By default, a refill starts when the ids in memory last 5 s.
const SOON: Duration = Duration::from_secs(2);
/// A sequence without ids in memory, for example under [`Order::Global`](crate::Order::Global), counts as
/// served for this long after a grant.
const LATELY: Duration = Duration::from_secs(5);
/// Maximum number of sequences in the text of a report.
const MOST_SHOWN: usize = 20;

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
    /// All sequences that are not [`Health::Serving`]. Sequences that are [running
    /// out](Trouble::is_running_out) come first; then the worst health, then the name decides.
    pub troubles: Vec<Trouble>,
    is_closed: bool,
    is_ready: bool,
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
    supply: Supply,
}

/// The supply of a sequence, as evidence about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// Nothing: it has no allocator, no ids and no recent grant, or an error that is only its own.
    Unknown,
    /// Calls get ids.
    Served,
    /// Calls get no ids, or soon will not; the error may concern the store.
    RunningOut,
    /// Likewise, and the store itself reports that it will not grant soon.
    Refused,
}

impl HealthReport {
    /// Returns whether load balancers should send clients to this process. It is not ready after
    /// [`close`](Sequences::close), and while a sequence in use is [running out](Trouble::is_running_out) of
    /// ids because of the store. The store is the cause if it does not answer, if it reports that it will not
    /// grant soon (a standby), or if no other sequence in use has ids. Otherwise the error is the sequence's
    /// own: an exhausted or removed sequence, or one that another session has locked, affects no other.
    ///
    /// A sequence is in use if it has an allocator or a handle.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns the text of the report without its verdict: `2 sequences, 1 in trouble; …`.
    pub fn summary(&self) -> impl fmt::Display {
        Summary(self)
    }

    /// Returns whether the sequences were closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Trouble {
    /// Returns whether the sequence is in use, its ids in memory are used up or last less than two seconds at
    /// the current rate, and the error may concern the whole store.
    pub fn is_running_out(&self) -> bool {
        matches!(self.supply, Supply::RunningOut | Supply::Refused)
    }

    /// Whether the ids in memory soon count as running out, so that an attempt now can still prevent it.
    fn will_run_out(&self) -> bool {
        let is_low = self.time_to_empty.is_some_and(|time| time < 2 * SOON);
        self.health == Health::Failing && is_low && !self.error.is_of_one_sequence()
    }

    /// Whether an answer of the store to another request would show that the error is the sequence's own.
    fn doubts_store(&self) -> bool {
        self.error.status() != Status::Permanent
    }
}

/// One line for a log or the body of a probe's response, with the errors of up to 20 sequences.
impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = if self.is_ready() { "ready" } else { "not ready" };
        write!(f, "{ready}: {}", self.summary())
    }
}

struct Summary<'a>(&'a HealthReport);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HealthReport { sequences, troubles, .. } = self.0;
        write!(f, "{sequences} sequences, {} in trouble", troubles.len())?;
        troubles.iter().take(MOST_SHOWN).try_for_each(|trouble| write!(f, "; {trouble}"))?;
        match troubles.len().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {} ({})", self.name, self.health, self.error)
    }
}

impl Sequences {
    /// Returns the worst health of all open sequences, and the error of each one in trouble. For readiness
    /// probes: see [`HealthReport::is_ready`].
    ///
    /// It reads counters and never waits for the store. A sequence without reserves counts as serving. A
    /// probe also causes up to three kinds of requests, so that a service that gets no traffic because it is
    /// not ready becomes ready when the store is back:
    ///
    /// - For a sequence that has no ids because the store failed, it starts another attempt, as
    ///   [`try_next`](crate::Allocator::try_next) does.
    /// - If all attempts failed permanently, it starts an attempt for one sequence, and only if the report is
    ///   not ready, or would soon not be. Otherwise, removed and exhausted sequences wait for a caller.
    /// - While a sequence fails, it reads a sequence from the store at most once a second. The next report
    ///   considers whether the store has answered.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
    /// let ids = idmill::Sequences::new(idmill::store::MemoryStore::new())?;
    /// let orders = ids.sequence::<i64>("orders").await?;
    /// orders.warm(1).await?;
    /// let report = ids.health();
    /// assert!(report.is_ready(), "{report}");
    /// # Ok(()) }
    /// ```
    pub fn health(&self) -> HealthReport {
        let (cores, now) = (self.shared.registry.cores(), self.shared.clock.now());
        let (mut supplies, mut found) = (Vec::new(), Vec::new());
        for core in &cores {
            let snapshot = Snapshot::of(core, now);
            let trouble = trouble(core, &snapshot);
            supplies.push(trouble.as_ref().map_or_else(|| supply(core, &snapshot, None), |one| one.supply));
            found.extend(trouble.map(|trouble| (trouble, core)));
        }
        let rank = |trouble: &Trouble| (!trouble.is_running_out(), trouble.health);
        found.sort_by(|(a, _), (b, _)| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
        let is_closed = self.shared.mailbox.is_closed();
        let is_ready = !is_closed && is_ready(&supplies, self.ask_if_doubted(&found, now));
        retry(&self.shared.mailbox, &found, is_ready);
        let worst = found.iter().map(|(trouble, _)| trouble.health).min().unwrap_or(Health::Serving);
        let health = if is_closed { Health::Ended } else { worst };
        let troubles = found.into_iter().map(|(trouble, _)| trouble).collect();
        HealthReport { health, sequences: cores.len(), troubles, is_closed, is_ready }
    }

    /// Reads a failing sequence from the store, if it is time. Returns whether the store is silent.
    fn ask_if_doubted(&self, found: &[(Trouble, &Arc<Core>)], now: Duration) -> bool {
        let doubted = found.iter().find(|(trouble, core)| trouble.doubts_store() && core.is_used());
        if doubted.is_none() {
            self.probe.forget();
        }
        doubted.is_some_and(|(trouble, _)| self.probe.ask(&self.shared, &trouble.name, now))
    }
}

/// Decides on readiness from the supply of all sequences, and from the reads of the store.
fn is_ready(supplies: &[Supply], is_silent: bool) -> bool {
    let has = |supply| supplies.contains(&supply);
    if has(Supply::Refused) {
        return false;
    }
    !has(Supply::RunningOut) || (has(Supply::Served) && !is_silent)
}

/// Starts attempts. Transient errors end by themselves, so each sequence without ids is tried. After
/// permanent errors, one attempt shows whether the store is back: the sequence with the fewest failures comes
/// first, so that each has its turn.
fn retry(mailbox: &Mailbox, found: &[(Trouble, &Arc<Core>)], is_ready: bool) {
    let is_permanent = |trouble: &Trouble| trouble.error.status() == Status::Permanent;
    let transient = found.iter().filter(|(one, _)| one.health == Health::Empty && !is_permanent(one));
    let is_tried = |one: &Trouble| one.will_run_out() || one.is_running_out() && !is_ready;
    let mut permanent: Vec<_> = found.iter().filter(|(one, _)| is_permanent(one) && is_tried(one)).collect();
    permanent.sort_by_key(|(_, core)| core.stats.failing());
    for (_, core) in transient.chain(permanent.into_iter().take(1)) {
        // Signals the actor; the error is not used.
        drop(core.refused(ErrorKind::Empty, mailbox));
    }
}

fn trouble(core: &Arc<Core>, snapshot: &Snapshot) -> Option<Trouble> {
    let health = snapshot.health();
    let error = match (health, snapshot.ended) {
        (Health::Serving, _) => return None,
        (Health::Ended, Some(ErrorKind::Closed)) => ErrorKind::Closed.into(),
        (_, Some(reason)) => core.last_failure().unwrap_or_else(|| reason.into()),
        (_, None) => core.last_failure().unwrap_or_else(|| overdue(core, snapshot)),
    };
    let supply = supply(core, snapshot, Some(&error));
    let Snapshot { time_to_empty, since_grant, .. } = *snapshot;
    Some(Trouble { name: core.name.clone(), health, error, time_to_empty, since_grant, supply })
}

fn supply(core: &Core, snapshot: &Snapshot, error: Option<&Error>) -> Supply {
    let has_ids = snapshot.remaining > 0;
    let is_out = match snapshot.health() {
        Health::Ended | Health::Empty => true,
        Health::Failing => has_ids && snapshot.time_to_empty.is_some_and(|time| time < SOON),
        Health::Serving => false,
    };
    match error {
        _ if !core.is_used() => Supply::Unknown,
        Some(error) if is_out && error.is_of_one_sequence() => Supply::Unknown,
        Some(error) if is_out && is_of_all(error) => Supply::Refused,
        _ if is_out => Supply::RunningOut,
        _ if has_ids || snapshot.since_grant.is_some_and(|ago| ago < LATELY + lasts(core, snapshot)) => {
            Supply::Served
        }
        // A reserve that takes no longer than usual: it will be granted soon, or fail.
        _ if snapshot.in_flight.is_some() => Supply::Served,
        _ => Supply::Unknown,
    }
}

/// Returns whether the error certainly concerns all sequences of the store.
fn is_of_all(error: &Error) -> bool {
    let is_marked = error.refuses_waiters() && error.status() != Status::Permanent;
    is_marked || error.kind() == ErrorKind::Witness
}

/// Returns how long a fixed step lasts at the current rate, up to a minute. A sequence without failures may
/// be empty for a moment between two draws if its watermark is low.
fn lasts(core: &Core, snapshot: &Snapshot) -> Duration {
    let Sizing::Fixed { step, .. } = core.settings.sizing else { return Duration::ZERO };
    let lasts = Duration::try_from_secs_f64(step as f64 / snapshot.rate).unwrap_or(Duration::MAX);
    lasts.min(Duration::from_secs(60))
}

/// Returns the error of a reserve that takes much longer than usual.
fn overdue(core: &Core, snapshot: &Snapshot) -> Error {
    let out = snapshot.in_flight.unwrap_or_default().as_millis();
    let message = format!("the store has not answered for {out} ms; check the store and the network");
    Error::new(ErrorKind::UnknownOutcome, message).of(&core.name).during(Operation::Reserve)
}

#[cfg(test)]
mod tests {
    use super::Supply::{Refused, RunningOut, Served, Unknown};
    use super::*;

    #[test]
    fn store_is_the_cause_if_silent_or_nothing_is_served() {
        for (supplies, is_silent, ready) in [
            (&[][..], false, true),
            (&[Unknown], false, true),
            (&[Served, Unknown], true, true),
            (&[RunningOut, Served], false, true),
            (&[RunningOut, Served], true, false),
            (&[RunningOut, Unknown], false, false),
            (&[RunningOut, RunningOut], false, false),
            (&[Refused, Served], false, false),
        ] {
            assert_eq!(is_ready(supplies, is_silent), ready, "{supplies:?} {is_silent}");
        }
    }
}
