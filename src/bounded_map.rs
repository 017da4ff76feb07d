//! A bounded map by sequence name that keeps the latest entries.

use std::collections::HashMap;
use std::mem;

use crate::name::SequenceName;

/// Keeps at least the last `MOST` names that were inserted, and at most `2 * MOST`.
#[derive(Debug)]
pub struct BoundedMap<T> {
    latest: HashMap<SequenceName, T>,
    before: HashMap<SequenceName, T>,
}

impl<T> Default for BoundedMap<T> {
    fn default() -> Self {
        Self { latest: HashMap::new(), before: HashMap::new() }
    }
}

impl<T> BoundedMap<T> {
    const MOST: usize = 1 << 15;

    /// Inserts a value under this name.
    pub fn put(&mut self, name: &SequenceName, value: T) {
        if self.latest.len() >= Self::MOST && !self.latest.contains_key(name) {
            self.before = mem::take(&mut self.latest);
        }
        self.latest.insert(name.clone(), value);
    }

    /// Returns the value under this name, if it is still kept.
    pub fn get(&self, name: &SequenceName) -> Option<&T> {
        self.latest.get(name).or_else(|| self.before.get(name))
    }

    /// Removes the name and returns its value.
    pub fn take(&mut self, name: &SequenceName) -> Option<T> {
        let before = self.before.remove(name);
        self.latest.remove(name).or(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_entries_are_kept_within_twice_the_limit() {
        let name = |n: usize| SequenceName::new(&n.to_string()).unwrap();
        let mut recent = BoundedMap::default();
        let all = 5 * BoundedMap::<usize>::MOST + 7;
        for n in 0..all {
            recent.put(&name(n), n);
        }
        // The number in `docs/guide/guarantees.md`.
        assert!((all - 32_768..all).all(|n| recent.get(&name(n)) == Some(&n)));
        assert!(recent.latest.len() + recent.before.len() <= 2 * BoundedMap::<usize>::MOST);
        recent.put(&name(all - 1), 1);
        assert_eq!((recent.take(&name(all - 1)), recent.get(&name(all - 1))), (Some(1), None));
    }
}
