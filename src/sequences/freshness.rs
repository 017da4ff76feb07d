//! Asks the store now and then whether the sequences whose ids are in memory are still the same.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::error::Result;
use crate::name::SequenceName;
use crate::sequence::registry::Registry;
use crate::sequence::state::Core;
use crate::store::{SequenceInfo, Store};
use crate::sync::Arc;

/// How many sequences are asked for in one call.
const AT_ONCE: usize = 256;

/// Confirms ids in memory, or drops them, so that none is handed out that was neither reserved nor confirmed
/// within `age`.
///
/// A look takes at most a quarter of that, as does the pause after it. So a look that failed can be followed
/// by one more before what it could not confirm is too old, and by three if it failed at once.
pub(super) struct Freshness {
    pub(super) age: Duration,
    pub(super) store: Arc<dyn Store>,
    pub(super) registry: Arc<Registry>,
}

/// What is known of each core, by its key.
type Known = HashMap<u64, State>;

#[derive(Clone, Copy)]
enum State {
    /// The sequence was the same then.
    Same(Instant),
    /// All in memory was dropped, when so many ids had been granted. Dropping once more would cost what is
    /// under way.
    Dropped(u64),
}

impl Freshness {
    /// Runs until the actor has ended.
    pub(super) async fn keep(self, mut ended: watch::Receiver<()>) {
        let (mut known, mut last) = (Known::new(), Instant::now());
        loop {
            // Nothing is ever sent: what is heard is the end.
            if timeout(self.quarter(), ended.changed()).await.is_ok() {
                return;
            }
            let begun = Instant::now();
            known = self.look(&known, last, begun).await;
            last = begun;
        }
    }

    fn quarter(&self) -> Duration {
        self.age / 4
    }

    /// One look at all that may have ids in memory. What was not among them at the `last` one was reserved
    /// since.
    async fn look(&self, known: &Known, last: Instant, begun: Instant) -> Known {
        let mut next = Known::new();
        let (mut cores, mut names) = (Vec::new(), Vec::new());
        for core in self.registry.cores() {
            match known.get(&core.key) {
                Some(dropped @ State::Dropped(granted)) if core.stats.granted() == *granted => {
                    next.insert(core.key, *dropped);
                }
                // Not only those with ids in memory: leases and threads hold some of their own.
                _ if core.is_used() && core.stats.identity().is_some() => {
                    names.push(core.name.clone());
                    cores.push(core);
                }
                _ => {}
            }
        }
        // None, if they are not heard of in time.
        let found = timeout(self.quarter(), self.read(&names)).await.unwrap_or_default();
        for (at, core) in cores.iter().enumerate() {
            let same_at = match known.get(&core.key) {
                Some(State::Same(at)) => *at,
                Some(State::Dropped(_)) | None => last,
            };
            let state = match found.get(at) {
                Some(Ok(stored)) if is_same(core, stored.as_ref()) => State::Same(begun),
                Some(Ok(_)) => drop_all(core, "the sequence was reset, revoked, removed or created anew"),
                // The next look may take that long.
                Some(Err(_)) | None if same_at.elapsed() + self.quarter() * 2 > self.age => {
                    drop_all(core, "the store could not be asked in time whether the sequence is the same")
                }
                Some(Err(_)) | None => State::Same(same_at),
            };
            next.insert(core.key, state);
        }
        next
    }

    async fn read(&self, names: &[SequenceName]) -> Vec<Result<Option<SequenceInfo>>> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(AT_ONCE) {
            found.extend(self.store.inspect_many(names).await);
        }
        found
    }
}

/// Whether ids in memory are of the sequence that is stored. One that was granted meanwhile is newer than the
/// look.
fn is_same(core: &Core, stored: Option<&SequenceInfo>) -> bool {
    core.stats.identity().is_none_or(|held| stored.is_some_and(|stored| stored.identity == held))
}

fn drop_all(core: &Arc<Core>, why: &str) -> State {
    let granted = core.stats.granted();
    let ids = core.revoke();
    tracing::warn!(sequence = %core.name, ids, why, "ids in memory were dropped");
    State::Dropped(granted)
}
