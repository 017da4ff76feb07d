//! A cache of sequences as last read or written.

use idmill::__private::BoundedMap;
use idmill::SequenceName;
use parking_lot::Mutex;

use super::Versioned;

/// The state of a process for each sequence. Holds at least the 32,768 sequences that were used last, and at
/// most twice that number, since sequences may be used once and never again.
#[derive(Debug)]
pub struct PerSequence<V>(Mutex<BoundedMap<V>>);

impl<V> Default for PerSequence<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Default> PerSequence<V> {
    /// Reads or changes the state of a sequence, which is the default at first.
    pub fn with<R>(&self, name: &SequenceName, look: impl FnOnce(&mut V) -> R) -> R {
        let mut all = self.0.lock();
        let mut state = all.take(name).unwrap_or_default();
        let looked = look(&mut state);
        all.put(name, state);
        looked
    }
}

/// A cache of sequences as last read or written. Holds at least the latest 32,768 sequences.
#[derive(Debug)]
pub struct Remembered<V>(Mutex<BoundedMap<Versioned<V>>>);

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> Remembered<V> {
    /// Returns the cached sequence of this name.
    pub fn get(&self, name: &SequenceName) -> Option<Versioned<V>> {
        self.0.lock().get(name).cloned()
    }

    /// Stores the current state of a sequence; `None` removes the entry.
    pub fn learn(&self, name: &SequenceName, now: Option<Versioned<V>>) {
        self.learn_if(name, now, |_, _| true);
    }

    /// Like [`learn`](Self::learn), but replaces a cached sequence only if it is `older`. Replies to
    /// concurrent requests can arrive in any order.
    pub fn learn_if(
        &self,
        name: &SequenceName,
        now: Option<Versioned<V>>,
        older: impl FnOnce(&Versioned<V>, &Versioned<V>) -> bool,
    ) {
        let mut all = self.0.lock();
        match now {
            None => drop(all.take(name)),
            Some(now) if all.get(name).is_none_or(|known| older(known, &now)) => all.put(name, now),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use idmill::store::{Bounds, SequenceInfo};

    use super::*;

    #[test]
    fn state_of_a_used_sequence_is_kept_among_many() {
        let (all, name) =
            (PerSequence::<u32>::default(), |n: u32| SequenceName::new(&n.to_string()).unwrap());
        for n in 1..100_000 {
            all.with(&name(n), |state| *state = n);
            assert_eq!(all.with(&name(0), |uses| std::mem::replace(uses, n)), n - 1);
        }
        assert_eq!(all.with(&name(1), |state| *state), 0, "it was not used for long");
    }

    #[test]
    fn an_answer_that_came_late_is_not_remembered() {
        let (all, name) = (Remembered::default(), SequenceName::new("s").unwrap());
        let info = SequenceInfo::new(name.clone(), Bounds::of::<u64>());
        let seen = |version| Some(Versioned { info: info.clone(), version });
        let older = |known: &Versioned<u8>, now: &Versioned<u8>| known.version < now.version;
        all.learn_if(&name, seen(2), older);
        all.learn_if(&name, seen(1), older);
        assert_eq!(all.get(&name), seen(2));
        all.learn(&name, seen(1));
        assert_eq!(all.get(&name), seen(1));
        all.learn(&name, None);
        assert_eq!(all.get(&name), None);
    }
}
