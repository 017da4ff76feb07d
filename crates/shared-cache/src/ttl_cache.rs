//! A cache of the sequences that a window serves. Entries expire, because others may reset or remove a
//! sequence.

use std::time::Duration;

use tokio::time::Instant;

use idmill::__private::BoundedMap;
use idmill::IdRange;
use idmill::SequenceName;
use idmill::store::Bounds;
use parking_lot::Mutex;

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
