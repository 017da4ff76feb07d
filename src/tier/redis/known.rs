//! What a window knows of the sequences it serves: for a while, since others may reset or remove them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::name::SequenceName;
use crate::store::{Bounds, Identity, SequenceInfo};
use crate::sync::{Arc, Mutex};

/// One sequence, as the store behind last told of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: Arc<str>,
    pub(super) identity: Identity,
    pub(super) bounds: Bounds,
    /// What the store will grant next, or less: others reserve too.
    next: Option<u64>,
    until: Instant,
}

/// The sequences that are known.
#[derive(Debug)]
pub(super) struct Sequences {
    by_name: Mutex<HashMap<SequenceName, Known>>,
    refresh: Duration,
}

impl Sequences {
    pub(super) fn new(refresh: Duration) -> Self {
        Self { by_name: Mutex::default(), refresh }
    }

    pub(super) fn get(&self, name: &SequenceName) -> Option<Known> {
        self.by_name.lock().get(name).filter(|known| Instant::now() < known.until).cloned()
    }

    /// As [`get`](Self::get), and also what should be heard of anew: for what only saves ids.
    pub(super) fn last_known(&self, name: &SequenceName) -> Option<Known> {
        self.by_name.lock().get(name).cloned()
    }

    pub(super) fn introduce(&self, info: &SequenceInfo, prefix: &str) {
        let mut by_name = self.by_name.lock();
        let now = Instant::now();
        let key = key(prefix, info).into();
        let (identity, bounds, next) = (info.identity, info.bounds, info.next);
        let known = Known { key, identity, bounds, next, until: now + self.refresh };
        // Before it would grow: so the forgotten never outnumber those in use.
        if by_name.len() == by_name.capacity() {
            by_name.retain(|_, known| now < known.until);
        }
        by_name.insert(info.name.clone(), known);
    }

    pub(super) fn forget(&self, name: &SequenceName) {
        self.by_name.lock().remove(name);
    }
}

impl Known {
    /// Whether the store's next id may be above this ceiling, which is not the sequence's own end.
    pub(super) fn near(&self, ceiling: u64, block: u64) -> bool {
        let next = self.next.map(|next| next.saturating_add(block.saturating_mul(NEAR)));
        ceiling < self.bounds.max() && next.is_none_or(|next| next > ceiling)
    }
}

/// So many blocks may have been reserved since the store was last heard of.
const NEAR: u64 = 1_000;

/// The hash's key. Incarnation and epoch tell it from every other sequence of this name; the braces have a cluster
/// keep all of a prefix in one slot.
fn key(prefix: &str, info: &SequenceInfo) -> String {
    let Identity { incarnation, epoch } = info.identity;
    format!("{{{prefix}}}:w:{incarnation:x}:{epoch}:{}", info.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, incarnation: u64, epoch: u64, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new(name).unwrap(), Bounds::new(1, 1_000_000).unwrap());
        SequenceInfo { name, next, bounds, identity: Identity { incarnation, epoch } }
    }

    #[test]
    fn a_key_tells_what_it_is_of() {
        assert_eq!(key("idmill", &info("order s", 255, 2, None)), "{idmill}:w:ff:2:order s");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_forgotten_in_time() {
        let known = Sequences::new(Duration::from_secs(5));
        let first = info("s", 1, 0, Some(1));
        known.introduce(&first, "p");
        let found = known.get(&first.name).unwrap();
        assert!(!found.near(1_000_000, 10), "its own end");
        assert!(found.near(10_000, 10) && !found.near(10_001, 10));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(known.get(&first.name).is_none() && known.last_known(&first.name).is_some());
        known.forget(&first.name);
        assert!(known.last_known(&first.name).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_million_sequences_that_came_and_went_leave_no_trace() {
        let known = Sequences::new(Duration::from_secs(5));
        for round in 0..20_u64 {
            for n in 0..50_u64 {
                known.introduce(&info(&format!("{round}-{n}"), round + 1, n, Some(1)), "p");
            }
            tokio::time::advance(Duration::from_secs(6)).await;
        }
        let left = known.by_name.lock().len();
        assert!(left <= 200, "{left} of 1000");
    }
}
