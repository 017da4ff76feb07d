//! Checks regularly that the sequences whose ids are in memory are unchanged in the store.

use std::collections::HashMap;
use std::time::Duration;

use tokio::runtime::Handle as RuntimeHandle;
use tokio::sync::{Semaphore, watch};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};

use crate::error::{Error, ErrorKind, Result};
use crate::name::SequenceName;
use crate::state::clock::Clock;
use crate::state::core::Core;
use crate::state::mailbox::Mailbox;
use crate::state::registry::Registry;
use crate::state::task::{Task, task_failed};
use crate::store::{Identity, SequenceInfo, Store};
use crate::sync::Arc;

/// Number of sequences read in one call.
const AT_ONCE: usize = 256;

/// Confirms ids in memory or drops them, so that every id handed out was reserved or confirmed within `age`.
///
/// A check takes at most a quarter of `age`, as does the pause after it. So a check that fails immediately
/// leaves time for another one before unconfirmed ids are too old. The sequences that were confirmed longest
/// ago are read first: if the store is too slow to read all of them, each has its turn. A refill confirms its
/// sequence too.
///
/// Checks run on the actor's runtime, and store calls on the store's runtime. A call that panics or blocks
/// its thread counts as unanswered.
pub(super) struct MaxAge {
    age: Duration,
    store: Arc<dyn Store>,
    store_runtime: RuntimeHandle,
    /// Limits the store to one call, even after a check has timed out: calls would otherwise pile up on a
    /// blocked thread.
    turn: Arc<Semaphore>,
    registry: Arc<Registry>,
    mailbox: Arc<Mailbox>,
    clock: Clock,
}

/// The state of each core, by its key.
type States = HashMap<u64, State>;

#[derive(Clone, Copy)]
enum State {
    /// The sequence was unchanged at the time `at`; `left` ids had left memory at the last check.
    Same { at: Instant, left: u64 },
    /// All ids in memory were dropped; holds the number of ids granted until then. Dropping again would waste
    /// the reserve in flight.
    Dropped(u64),
}

/// A core whose sequence is read from the store.
struct Asked {
    core: Arc<Core>,
    held: Identity,
    /// When the sequence was last confirmed.
    same_at: Instant,
}

impl MaxAge {
    pub(super) fn new(
        age: Duration,
        (store, store_runtime): (Arc<dyn Store>, RuntimeHandle),
        registry: Arc<Registry>,
        mailbox: Arc<Mailbox>,
        clock: Clock,
    ) -> Self {
        Self { age, store, store_runtime, turn: Arc::new(Semaphore::new(1)), registry, mailbox, clock }
    }

    /// Runs until the actor has ended.
    pub(super) async fn keep(self, mut ended: watch::Receiver<()>) {
        let (mut known, mut last, mut pause) = (States::new(), Instant::now(), self.quarter());
        loop {
            // Nothing is ever sent on this channel: it only signals the end.
            if timeout(pause, ended.changed()).await.is_ok() {
                return;
            }
            let begun = Instant::now();
            (known, pause) = self.look(&known, last, begun).await;
            last = begun;
        }
    }

    fn quarter(&self) -> Duration {
        self.age / 4
    }

    /// Returns when the last grant confirmed the sequence: the reserve had been sent by then. A grant of
    /// another identity empties memory first.
    fn refilled(&self, core: &Core) -> Option<Instant> {
        let (at, latency) = core.stats.granted_at().zip(core.stats.latency())?;
        Some(self.clock.instant(at.saturating_sub(latency)))
    }

    /// Whether ids that were confirmed at this time will be too old at the end of the next check, which
    /// begins after `pause`.
    fn is_due(&self, same_at: Instant, pause: Duration) -> bool {
        same_at.elapsed() + pause + self.quarter() > self.age
    }

    /// Checks all sequences that may have ids in memory. A sequence without a state got its first ids after
    /// the `last` check began. Returns the pause before the next check too.
    async fn look(&self, known: &States, last: Instant, begun: Instant) -> (States, Duration) {
        let (mut next, mut asked) = (States::new(), Vec::new());
        for core in self.registry.cores() {
            // Lets the runtime's other tasks run in between: there may be a million sequences.
            consume_budget().await;
            let refilled = self.refilled(&core);
            let latest = |at: Instant| refilled.map_or(at, |refilled| refilled.max(at));
            match known.get(&core.key) {
                Some(dropped @ State::Dropped(granted)) if core.stats.granted() == *granted => {
                    next.insert(core.key, *dropped);
                }
                Some(State::Same { at, left }) if !core.is_used() && core.left() == *left => {
                    next.insert(core.key, self.of_nobody(&core, latest(*at), *left));
                }
                // A later check is early enough.
                _ if refilled.is_some_and(|at| at.elapsed() <= self.quarter()) => {
                    next.insert(core.key, State::Same { at: latest(last), left: core.left() });
                }
                state => {
                    let same_at = latest(match state {
                        Some(State::Same { at, .. }) => *at,
                        Some(State::Dropped(_)) | None => last,
                    });
                    // Check the sequence even if memory is empty: blocks and threads may still hold ids.
                    asked.extend(core.stats.identity().map(|held| Asked { core, held, same_at }));
                }
            }
        }
        asked.sort_by_key(|asked| asked.same_at);
        let found = self.read(asked.iter().map(|asked| asked.core.name.clone()).collect()).await;
        let pause = self.pause(asked.len(), found.len());
        for (at, asked) in asked.iter().enumerate() {
            next.insert(asked.core.key, self.judge(asked, found.get(at), begun, pause));
        }
        (next, pause)
    }

    /// Returns the pause before the next check: none if this one could not read all sequences in its time.
    fn pause(&self, asked: usize, answered: usize) -> Duration {
        if (1..asked).contains(&answered) {
            let (age, limit) = (self.age, self.quarter());
            tracing::warn!(
                "`max_age` {age:?} is too short: {answered} of {asked} sequences were checked within {limit:?}; \
                 raise it"
            );
            return Duration::ZERO;
        }
        self.quarter()
    }

    /// Handles a sequence without an allocator and without draws: the store is not queried.
    fn of_nobody(&self, core: &Arc<Core>, at: Instant, left: u64) -> State {
        if self.is_due(at, self.quarter()) {
            tracing::debug!(sequence = %core.name, "ids in memory were dropped: too old, and unused");
            return self.drop_all(core);
        }
        State::Same { at, left }
    }

    /// Confirms or drops ids by the store's answer, if there is one.
    fn judge(
        &self,
        asked: &Asked,
        found: Option<&Result<Option<SequenceInfo>>>,
        begun: Instant,
        pause: Duration,
    ) -> State {
        let Asked { core, held, same_at } = asked;
        let why = match found {
            // If the identity has changed since this read was sent, the grant is newer than the read.
            Some(Ok(stored)) if is_same(stored.as_ref(), *held) || core.stats.identity() != Some(*held) => {
                return State::Same { at: begun, left: core.left() };
            }
            Some(Ok(_)) => "the sequence was reset, revoked, removed or created again",
            Some(Err(_)) | None if self.is_due(*same_at, pause) => {
                "the store did not confirm in time that the sequence is the same"
            }
            Some(Err(_)) | None => return State::Same { at: *same_at, left: core.left() },
        };
        tracing::warn!(sequence = %core.name, why, "ids in memory were dropped");
        self.drop_all(core)
    }

    /// Returns the answers that arrive in time: only those of the first names if the store is slow.
    async fn read(&self, names: Vec<SequenceName>) -> Vec<Result<Option<SequenceInfo>>> {
        let mut found = Vec::with_capacity(names.len());
        let reading = async {
            for names in names.chunks(AT_ONCE) {
                found.extend(self.inspect(names.to_vec()).await);
            }
        };
        let _ = timeout(self.quarter(), reading).await;
        found
    }

    /// Returns one answer for each name.
    async fn inspect(&self, names: Vec<SequenceName>) -> Vec<Result<Option<SequenceInfo>>> {
        let (store, count) = (self.store.clone(), names.len());
        let turn = self.turn.clone().acquire_owned().await;
        let asked = Task::spawn(&self.store_runtime, async move {
            let _turn = turn;
            store.inspect_many(&names).await
        });
        let mut answers = asked.await.unwrap_or_else(|failure| vec![Err(task_failed(failure)); count]);
        answers.resize_with(count, || Err(Error::from(ErrorKind::StoreViolation)));
        answers
    }

    fn drop_all(&self, core: &Arc<Core>) -> State {
        let granted = core.stats.granted();
        core.revoke(&self.mailbox);
        State::Dropped(granted)
    }
}

fn is_same(stored: Option<&SequenceInfo>, held: Identity) -> bool {
    stored.is_some_and(|stored| stored.identity == held)
}
