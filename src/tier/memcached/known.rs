//! What a window knows of the sequences it serves: for a while, since others may reset or remove them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use crate::name::SequenceName;
use crate::store::{Bounds, Identity, SequenceInfo};
use crate::sync::{Arc, Mutex};
use crate::tier::cache::Blocks;

/// The layout of the item. Another layout gets another number, and thereby other keys.
const FORMAT: u32 = 1;
/// memcached takes no longer key.
pub(super) const LONGEST_KEY: usize = 250;
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// Every so many times in a row that a sequence is found busy, its item is looked at: it may not be a stub at all.
const LOOK_AT: u32 = 32;

/// One sequence, as the store behind last told of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: Arc<str>,
    pub(super) blocks: Blocks,
    pub(super) identity: Identity,
    pub(super) bounds: Bounds,
    /// What the store will grant next, or less: others reserve too.
    pub(super) next: Option<u64>,
    until: Instant,
    busy: u32,
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

    pub(super) fn introduce(&self, info: &SequenceInfo, prefix: &str, block: u64) {
        let Some(blocks) = Blocks::new(info.bounds.start(), block) else { return };
        let mut by_name = self.by_name.lock();
        let now = Instant::now();
        let earlier = by_name.get(&info.name).filter(|known| known.identity == info.identity);
        // What was read may be older than what this process reserved meanwhile.
        let next = info.next.map(|next| next.max(earlier.and_then(|known| known.next).unwrap_or(0)));
        let known = Known {
            key: key(prefix, info, block).into(),
            blocks,
            identity: info.identity,
            bounds: info.bounds,
            next,
            until: now + self.refresh,
            busy: 0,
        };
        // Before it would grow: so the forgotten never outnumber those in use.
        if by_name.len() == by_name.capacity() {
            by_name.retain(|_, known| now < known.until);
        }
        by_name.insert(info.name.clone(), known);
    }

    /// The store has granted everything before this id.
    pub(super) fn advance(&self, name: &SequenceName, identity: Identity, next: Option<u64>) {
        if let Some(known) = self.by_name.lock().get_mut(name).filter(|known| known.identity == identity) {
            known.busy = 0;
            known.next = known.next.zip(next).map(|(known, next)| known.max(next));
        }
    }

    /// Somebody else holds its stub.
    pub(super) fn busy(&self, name: &SequenceName) {
        if let Some(known) = self.by_name.lock().get_mut(name) {
            known.busy = known.busy.wrapping_add(1);
        }
    }

    pub(super) fn forget(&self, name: &SequenceName) {
        self.by_name.lock().remove(name);
    }
}

impl Known {
    /// Whether a draw may lead above this ceiling, which is not the sequence's own end.
    pub(super) fn near(&self, ceiling: u64) -> bool {
        ceiling < self.bounds.max() && self.next.is_none_or(|next| next > ceiling)
    }

    /// Whether this draw should look before it adds.
    pub(super) fn looks_stuck(&self) -> bool {
        self.busy % LOOK_AT == LOOK_AT - 1
    }
}

/// The item's key. Incarnation, epoch and block length tell it from every other; the name is there for people, as far as
/// there is room.
fn key(prefix: &str, info: &SequenceInfo, block: u64) -> String {
    let Identity { incarnation, epoch } = info.identity;
    let mut key = format!("{prefix}:{FORMAT}:{incarnation:x}:{epoch}:{block}:");
    let _ = write!(key, "{}", utf8_percent_encode(info.name.as_str(), PLAIN));
    // All of it is ASCII.
    key.truncate(LONGEST_KEY);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info(name: &str, incarnation: u64, epoch: u64, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new(name).unwrap(), Bounds::new(1, 1_000).unwrap());
        SequenceInfo { name, next, bounds, identity: Identity { incarnation, epoch } }
    }

    #[test]
    fn a_key_tells_what_it_is_of() {
        assert_eq!(key("idmill", &info("order s", 255, 2, None), 1000), "idmill:1:ff:2:1000:order%20s");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_forgotten_in_time_and_never_steps_back_meanwhile() {
        let known = Sequences::new(Duration::from_secs(5));
        let first = info("s", 1, 0, Some(1));
        assert!(known.get(&first.name).is_none());
        known.introduce(&first, "p", 10);
        known.advance(&first.name, first.identity, Some(31));
        known.introduce(&info("s", 1, 0, Some(21)), "p", 10);
        assert_eq!(known.get(&first.name).unwrap().next, Some(31), "the reading was the older one");
        known.advance(&first.name, Identity { incarnation: 9, epoch: 0 }, Some(41));
        assert_eq!(known.get(&first.name).unwrap().next, Some(31), "another sequence's");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(known.get(&first.name).is_none());
        known.introduce(&info("s", 1, 1, Some(1)), "p", 10);
        assert_eq!(known.get(&first.name).unwrap().next, Some(1), "it was reset");
        known.introduce(&info("s", 1, 1, None), "p", 10);
        assert_eq!(known.get(&first.name).unwrap().next, None, "exhausted");
        known.forget(&first.name);
        assert!(known.get(&first.name).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_million_sequences_that_came_and_went_leave_no_trace() {
        let known = Sequences::new(Duration::from_secs(5));
        for round in 0..20_u64 {
            for n in 0..50_u64 {
                known.introduce(&info(&format!("{round}-{n}"), round + 1, n, Some(1)), "p", 10);
            }
            tokio::time::advance(Duration::from_secs(6)).await;
        }
        let left = known.by_name.lock().len();
        assert!(left <= 200, "{left} of 1000");
    }

    proptest! {
        #[test]
        fn keys_are_what_memcached_takes_and_distinct(
            name in "\\PC{1,60}", prefix in "[A-Za-z0-9_.:-]{1,64}", a in any::<(u64, u64)>(), b in any::<(u64, u64)>(),
            block in 1..=Blocks::MAX_LEN,
        ) {
            prop_assume!(SequenceName::new(name.as_str()).is_ok());
            let (first, second) = (info(&name, a.0, a.1, None), info(&name, b.0, b.1, None));
            let (first, second) = (key(&prefix, &first, block), key(&prefix, &second, block));
            prop_assert!(first.len() <= LONGEST_KEY && first.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(first == second, a == b);
        }
    }
}
