//! What a store last saw of the sequences that it was asked for.

use idmill::__private::Recent;
use idmill::SequenceName;
use parking_lot::Mutex;

use super::Seen;

/// Sequences as they were last read or written, of which at least the latest 32,768 are remembered.
#[derive(Debug)]
pub struct Remembered<V>(Mutex<Recent<Seen<V>>>);

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> Remembered<V> {
    /// What is remembered of a sequence.
    pub fn get(&self, name: &SequenceName) -> Option<Seen<V>> {
        self.0.lock().get(name).cloned()
    }

    /// Remembers what is there now; forgets what is not.
    pub fn learn(&self, name: &SequenceName, now: Option<Seen<V>>) {
        self.learn_if(name, now, |_, _| true);
    }

    /// The same, unless what is remembered is not `older` than what is there now: answers to requests that
    /// were sent side by side come in any order.
    pub fn learn_if(
        &self,
        name: &SequenceName,
        now: Option<Seen<V>>,
        older: impl FnOnce(&Seen<V>, &Seen<V>) -> bool,
    ) {
        let mut all = self.0.lock();
        match now {
            None => drop(all.take(name)),
            Some(now) if all.get(name).is_none_or(|known| older(known, &now)) => all.put(name, now),
            Some(_) => {}
        }
    }
}
