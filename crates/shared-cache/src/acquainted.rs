//! What a window remembers of each sequence that it serves: for a limited time, since others may reset or
//! remove the sequence.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use idmill::IdRange;
use idmill::SequenceName;
use idmill::store::Bounds;
use parking_lot::Mutex;

/// What is known of each sequence, a `K`, and until when it is valid.
#[derive(Debug)]
pub struct Acquainted<K> {
    by_name: Mutex<HashMap<SequenceName, Entry<K>>>,
    refresh: Duration,
}

#[derive(Debug)]
struct Entry<K> {
    known: K,
    until: Instant,
}

impl<K: Clone> Acquainted<K> {
    /// Creates an empty memory, whose entries are valid for `refresh`.
    pub fn new(refresh: Duration) -> Self {
        Self { by_name: Mutex::default(), refresh }
    }

    /// Returns what is known, if it is still valid.
    pub fn get(&self, name: &SequenceName) -> Option<K> {
        let by_name = self.by_name.lock();
        let entry = by_name.get(name).filter(|entry| Instant::now() < entry.until);
        entry.map(|entry| entry.known.clone())
    }

    /// As [`get`](Self::get), but also returns what is no longer valid: for uses that only save ids.
    pub fn last_known(&self, name: &SequenceName) -> Option<K> {
        self.by_name.lock().get(name).map(|entry| entry.known.clone())
    }

    /// Stores what was heard now, given what was known before.
    pub fn introduce(&self, name: &SequenceName, heard: impl FnOnce(Option<&K>) -> K) {
        let mut by_name = self.by_name.lock();
        let now = Instant::now();
        let known = heard(by_name.get(name).map(|entry| &entry.known));
        // Before it would grow: so the forgotten never outnumber those in use.
        if by_name.len() == by_name.capacity() {
            by_name.retain(|_, entry| now < entry.until);
        }
        by_name.insert(name.clone(), Entry { known, until: now + self.refresh });
    }

    /// Changes what is known, if anything is. It stays valid for as long as before.
    pub fn update(&self, name: &SequenceName, change: impl FnOnce(&mut K)) {
        if let Some(entry) = self.by_name.lock().get_mut(name) {
            change(&mut entry.known);
        }
    }

    /// The bounds of a sequence after this range was drawn from its window, where these were known. A range
    /// beyond them was granted by the store too: the end was raised, and others know already.
    pub fn bounds_after(&self, name: &SequenceName, range: IdRange, known: Bounds) -> Bounds {
        if range.end() <= u128::from(known.max()) + 1 {
            return known;
        }
        self.forget(name);
        range.last().and_then(|last| Bounds::new(known.start(), last).ok()).unwrap_or(known)
    }

    /// Forgets the sequence: it must be introduced again before anything else.
    pub fn forget(&self, name: &SequenceName) {
        self.by_name.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> SequenceName {
        SequenceName::new(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_to_be_heard_anew_in_time() {
        let (all, s) = (Acquainted::new(Duration::from_secs(5)), name("s"));
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
    async fn what_was_drawn_beyond_the_end_says_that_it_was_raised() {
        let (all, s, known) =
            (Acquainted::new(Duration::from_secs(5)), name("s"), Bounds::new(1, 10).unwrap());
        all.introduce(&s, |_| ());
        assert_eq!(all.bounds_after(&s, IdRange::new(6, 5).unwrap(), known), known);
        assert_eq!(all.get(&s), Some(()));
        let raised = Bounds::new(1, 11).unwrap();
        assert_eq!(all.bounds_after(&s, IdRange::new(7, 5).unwrap(), known), raised);
        assert_eq!(all.get(&s), None, "to be heard anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_million_sequences_that_came_and_went_leave_no_trace() {
        let all = Acquainted::new(Duration::from_secs(5));
        for round in 0..20 {
            for n in 0..50 {
                all.introduce(&name(&format!("{round}-{n}")), |_| ());
            }
            tokio::time::advance(Duration::from_secs(6)).await;
        }
        let left = all.by_name.lock().len();
        assert!(left <= 200, "{left} of 1000");
    }
}
