//! A map that is replaced as a whole: a look-up is one acquiring load, a change one compare-and-swap.

use std::borrow::Borrow;
use std::sync::Arc;

use super::ArcSwap;

#[derive(Debug)]
pub(crate) struct Map<K, V>(ArcSwap<Vec<(K, V)>>);

impl<K: Clone + Eq, V: Clone> Map<K, V> {
    pub(crate) fn new() -> Self {
        Self(ArcSwap::new(Arc::new(Vec::new())))
    }

    pub(crate) fn get<Q: Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        value_of(&self.0.load_full(), key)
    }

    // papaya's `get_or_insert` takes its key by value.
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn get_or_insert(&self, key: K, value: V) -> V {
        loop {
            let entries = self.0.load_full();
            if let Some(found) = value_of(&entries, &key) {
                return found;
            }
            let mut more = Vec::clone(&entries);
            more.push((key.clone(), value.clone()));
            if self.replaced(&entries, more) {
                return value;
            }
        }
    }

    pub(crate) fn remove_if(&self, key: &K, which: impl Fn(&V) -> bool) {
        loop {
            let entries = self.0.load_full();
            if !value_of(&entries, key).is_some_and(|value| which(&value)) {
                return;
            }
            let rest = entries.iter().filter(|(k, _)| k != key).cloned().collect();
            if self.replaced(&entries, rest) {
                return;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.load_full().len()
    }

    pub(crate) fn values(&self) -> Vec<V> {
        self.0.load_full().iter().map(|(_, value)| value.clone()).collect()
    }

    fn replaced(&self, entries: &Arc<Vec<(K, V)>>, by: Vec<(K, V)>) -> bool {
        Arc::ptr_eq(&self.0.compare_and_swap(entries, Arc::new(by)), entries)
    }
}

fn value_of<K: Borrow<Q>, V: Clone, Q: Eq + ?Sized>(entries: &[(K, V)], key: &Q) -> Option<V> {
    entries.iter().find(|(k, _)| k.borrow() == key).map(|(_, value)| value.clone())
}
