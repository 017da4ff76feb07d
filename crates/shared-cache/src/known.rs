//! The cached state of a sequence, for windows on caches.

use std::sync::Arc;

use idmill::store::{Bounds, Grant, Identity, SequenceInfo};
use idmill::{IdRange, SequenceName};
use tokio::time::Instant;

use super::cache::Layout;
use super::pace::Pace;
use super::ttl_cache::TtlCache;

/// The last of this many busy draws in a row reads the item first, in case it is not a stub.
const LOOK_AT: u32 = 32;

/// A sequence as last read from the store.
#[derive(Clone, Debug)]
pub struct Known {
    /// The key of its entry in the cache.
    pub key: Arc<str>,
    pub identity: Identity,
    pub bounds: Bounds,
    /// The next id of the store, or a lower one, because others reserve too.
    pub next: Option<u64>,
    /// The rate and duration of draws and refills.
    pub pace: Pace,
    /// How many preparations of a next range to skip, because others seem to reserve from the store directly.
    pub apart: u32,
    /// The end of the window when it was found empty, and the time when this was first found.
    pub empty: Option<(u64, Instant)>,
    busy: u32,
}

impl Known {
    /// Combines a new read, which may be older than this process's last reserve, with the state `before`.
    pub fn of(info: &SequenceInfo, key: String, before: Option<&Self>) -> Self {
        let before = before.filter(|known| known.identity == info.identity);
        let next = info.next.map(|next| next.max(before.and_then(|known| known.next).unwrap_or(0)));
        Self {
            key: key.into(),
            identity: info.identity,
            bounds: info.bounds,
            next,
            pace: before.map(|known| known.pace).unwrap_or_default(),
            apart: before.map_or(0, |known| known.apart),
            empty: before.and_then(|known| known.empty),
            busy: 0,
        }
    }

    /// Returns the encoding of ids as a number in the cache.
    pub fn layout(&self) -> Layout {
        Layout::new(self.bounds.start())
    }

    /// Records that the store has granted all ids before `next`, if the identity is unchanged.
    pub fn advance(&mut self, identity: Identity, next: Option<u64>) {
        if self.identity == identity {
            (self.busy, self.empty) = (0, None);
            self.next = self.next.zip(next).map(|(known, next)| known.max(next));
        }
    }

    /// Records that the window with this end is empty. Returns the time when this was first found.
    pub fn found_empty(&mut self, end: u64, now: Instant) -> Instant {
        let (_, since) = self.empty.filter(|(known, _)| *known == end).unwrap_or((end, now));
        self.empty = Some((end, since));
        since
    }

    /// Records that a draw waits for another client.
    pub fn found_busy(&mut self) {
        self.busy = self.busy.wrapping_add(1);
    }

    /// Returns whether a draw may exceed `ceiling`, if others have since reserved `reserved` ids. Always
    /// false for a ceiling at the end of the sequence.
    pub fn near(&self, ceiling: u64, reserved: u64) -> bool {
        let next = self.next.map(|next| next.saturating_add(reserved));
        ceiling < self.bounds.max() && next.is_none_or(|next| next > ceiling)
    }

    /// Returns whether this draw should read the item before the increment.
    pub fn looks_stuck(&self) -> bool {
        self.busy % LOOK_AT == LOOK_AT - 1
    }
}

impl TtlCache<Known> {
    /// Stores the state of a sequence, read from the store. `key` is the key of its entry in the cache.
    pub fn hear(&self, sequence: &SequenceInfo, key: String) {
        self.introduce(&sequence.name, |before| Known::of(sequence, key, before));
    }

    /// Returns the grant of a range that was drawn from the window.
    pub fn granted(&self, name: &SequenceName, range: IdRange, known: &Known) -> Grant {
        Grant::new(range, known.identity, self.bounds_after(name, range, known.bounds))
    }

    /// Records that a refill claimed nothing, or that its outcome is unknown (`lost`).
    pub fn released(&self, name: &SequenceName, begun: Instant, lost: bool) {
        self.update(name, |latest| {
            if !lost {
                latest.pace.was_refused();
            }
            latest.pace.took(begun.elapsed());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(incarnation: u64, epoch: u64, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new("s").unwrap(), Bounds::new(1, 1_000).unwrap());
        SequenceInfo::stored(name, next, bounds, Identity { incarnation, epoch })
    }

    #[test]
    fn known_state_never_steps_back_within_one_sequence() {
        let heard = |info, before: &Known| Known::of(&info, "k".to_owned(), Some(before));
        let mut known = Known::of(&info(1, 0, Some(1)), "k".to_owned(), None);
        known.advance(known.identity, Some(31));
        known = heard(info(1, 0, Some(21)), &known);
        assert_eq!(known.next, Some(31), "the reading was the older one");
        known.advance(Identity { incarnation: 9, epoch: 0 }, Some(41));
        assert_eq!(known.next, Some(31), "another sequence's");
        known = heard(info(1, 1, Some(1)), &known);
        assert_eq!(known.next, Some(1), "it was reset");
        assert_eq!(heard(info(1, 1, None), &known).next, None, "exhausted");
    }

    #[test]
    fn one_that_is_found_busy_again_and_again_is_looked_at() {
        let mut known = Known::of(&info(1, 0, Some(1)), "k".to_owned(), None);
        for _ in 1..LOOK_AT {
            assert!(!known.looks_stuck());
            known.found_busy();
        }
        assert!(known.looks_stuck());
        known.advance(known.identity, Some(11));
        assert!(!known.looks_stuck());
    }
}
