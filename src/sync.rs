//! Imports shared-memory primitives for the other modules.
//!
//! The crate imports atomics, locks, `ArcSwap` and lock-free collections only from here, with one exception;
//! `tests/library/facade.rs` checks this. The package `loom-tests` compiles the same source with
//! instrumented replacements (`loom-tests/src/sync`). Parts that loom cannot instrument (the real `ArcSwap`)
//! are covered by Miri and ThreadSanitizer.

/// For counters that do not affect the protocol. The model checker ignores them.
pub(crate) use std::sync::atomic::AtomicU64 as Counter;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, OnceLock, Weak};

pub(crate) use arc_swap::{ArcSwap, ArcSwapOption};
pub(crate) use crossbeam_queue::SegQueue;
pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use parking_lot::Mutex;
pub(crate) use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use std::borrow::Borrow;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`, which must leave no state half changed if it panics; returns `None` if it does.
pub(crate) fn unless_it_panics<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// A concurrent map whose lookups take no lock.
pub(crate) struct Map<K, V>(papaya::HashMap<K, V>);

impl<K: Hash + Eq, V: Clone> Map<K, V> {
    pub(crate) fn new() -> Self {
        Self(papaya::HashMap::new())
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.pin().get(key).cloned()
    }

    /// Returns the value under `key`, after inserting `value` if there was none.
    pub(crate) fn get_or_insert(&self, key: K, value: V) -> V {
        self.0.pin().get_or_insert(key, value).clone()
    }

    /// Removes `key` if its value still satisfies `which`.
    pub(crate) fn remove_if(&self, key: &K, which: impl Fn(&V) -> bool) {
        // The entry may already have been replaced or removed: both are fine for the caller.
        let _ = self.0.pin().remove_if(key, |_, value| which(value));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn values(&self) -> Vec<V> {
        self.0.pin().values().cloned().collect()
    }
}
