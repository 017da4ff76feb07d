//! The cached state of a sequence, for windows on caches.

use std::sync::Arc;
use std::time::Duration;

use idmill::__private::BoundedMap;
use idmill::store::{Bounds, Grant, Identity, SequenceInfo};
use idmill::{IdRange, SequenceName};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::cache::Layout;
use super::pace::Pace;

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

/// The value `K` of each sequence, with its expiry. Holds at least the latest 32,768 sequences.
#[derive(Debug)]
pub struct TtlCache<K> {
    by_name: Mutex<BoundedMap<Entry<K>>>,
    refresh: Duration,
}

#[derive(Debug)]
struct Entry<K> {
    known: K,
    until: Instant,
}

impl<K: Clone> TtlCache<K> {
    /// Creates an empty cache whose entries are valid for `refresh`.
    pub fn new(refresh: Duration) -> Self {
        Self { by_name: Mutex::default(), refresh }
    }

    /// Returns the value, unless it has expired.
    pub fn get(&self, name: &SequenceName) -> Option<K> {
        let by_name = self.by_name.lock();
        let entry = by_name.get(name).filter(|entry| Instant::now() < entry.until);
        entry.map(|entry| entry.known.clone())
    }

    /// Like [`get`](Self::get), but also returns an expired value, for uses where a stale value wastes only
    /// ids.
    pub fn last_known(&self, name: &SequenceName) -> Option<K> {
        self.by_name.lock().get(name).map(|entry| entry.known.clone())
    }

    /// Stores a new value, computed from the previous one.
    pub fn introduce(&self, name: &SequenceName, heard: impl FnOnce(Option<&K>) -> K) {
        let mut by_name = self.by_name.lock();
        let known = heard(by_name.get(name).map(|entry| &entry.known));
        by_name.put(name, Entry { known, until: Instant::now() + self.refresh });
    }

    /// Changes the value, if there is one. Its expiry stays the same.
    pub fn update(&self, name: &SequenceName, change: impl FnOnce(&mut K)) {
        let mut by_name = self.by_name.lock();
        if let Some(mut entry) = by_name.take(name) {
            change(&mut entry.known);
            by_name.put(name, entry);
        }
    }

    /// Returns the bounds of a sequence after this range was drawn from its window. A range beyond the known
    /// bounds is valid too: another process raised the end before the store granted it.
    pub fn bounds_after(&self, name: &SequenceName, range: IdRange, known: Bounds) -> Bounds {
        if range.end() <= u128::from(known.max()) + 1 {
            return known;
        }
        self.forget(name);
        range.last().and_then(|last| Bounds::new(known.start(), last).ok()).unwrap_or(known)
    }

    /// Removes the sequence, so that it must be introduced again.
    pub fn forget(&self, name: &SequenceName) {
        self.by_name.lock().take(name);
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

    fn name(text: &str) -> SequenceName {
        SequenceName::new(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn cached_entry_expires_after_its_ttl() {
        let (all, s) = (TtlCache::new(Duration::from_secs(5)), name("s"));
        all.update(&s, |_| unreachable!("nothing is known"));
        all.introduce(&s, |before| before.copied().unwrap_or(1));
        tokio::time::advance(Duration::from_secs(4)).await;
        all.update(&s, |known| *known += 1);
        assert_eq!(all.get(&s), Some(2));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((all.get(&s), all.last_known(&s)), (None, Some(2)));
        all.introduce(&s, |before| before.copied().unwrap_or(1) + 1);
        assert_eq!(all.get(&s), Some(3));
        all.forget(&s);
        assert_eq!((all.get(&s), all.last_known(&s)), (None, None));
    }

    #[tokio::test]
    async fn draw_beyond_the_end_reports_the_raise() {
        let (all, s, known) = (TtlCache::new(Duration::from_secs(5)), name("s"), Bounds::new(1, 10).unwrap());
        all.introduce(&s, |_| ());
        assert_eq!(all.bounds_after(&s, IdRange::new(6, 5).unwrap(), known), known);
        assert_eq!(all.get(&s), Some(()));
        let raised = Bounds::new(1, 11).unwrap();
        assert_eq!(all.bounds_after(&s, IdRange::new(7, 5).unwrap(), known), raised);
        assert_eq!(all.get(&s), None, "introduced again");
    }
}
