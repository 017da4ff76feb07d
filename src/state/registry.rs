//! Map from name to core, with lock-free lookups.
//!
//! # The creation race
//! Several callers may find a name missing at the same time. Each creates a core. The map keeps the first and
//! returns it to all; the others are dropped, and the actor never sees them. A core that is being evicted
//! (see [`Core::evict`]) accepts no new users: callers that find it remove it and create the next one.
//!
//! # History of evicted sequences
//! The registry keeps the history of evicted sequences that were granted ids, up to the limit of
//! [`BoundedMap`]. So a lost sequence is still not created again, and a store that went back in time is still
//! detected.

use crate::bounded_map::BoundedMap;
use crate::name::SequenceName;
use crate::state::core::Core;
use crate::state::grant_history::{GrantHistory, Reached};
use crate::sync::{Arc, Map, Mutex, SegQueue, Weak};

pub(crate) struct Registry {
    cores: Map<SequenceName, Arc<Core>>,
    /// Cores that the sweep for idle cores has not visited yet; `None` without eviction.
    opened: Option<SegQueue<Weak<Core>>>,
    /// The histories of evicted sequences.
    evicted: Mutex<BoundedMap<GrantHistory>>,
    /// The sequences that this process removed from the store and has not opened since.
    removed: Mutex<BoundedMap<()>>,
}

impl Registry {
    /// Creates a registry without eviction.
    pub(crate) fn new() -> Self {
        let (evicted, removed) = (Mutex::new(BoundedMap::default()), Mutex::new(BoundedMap::default()));
        Self { cores: Map::new(), opened: None, evicted, removed }
    }

    /// Creates a registry whose idle cores are evicted.
    pub(crate) fn evicting() -> Self {
        Self { opened: Some(SegQueue::new()), ..Self::new() }
    }

    /// Returns a core that was created and has not been returned here before.
    pub(crate) fn next_opened(&self) -> Option<Arc<Core>> {
        let opened = self.opened.as_ref()?;
        std::iter::from_fn(|| opened.pop()).find_map(|core| core.upgrade())
    }

    /// Returns the core of this name, with the caller as a new user.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Core>> {
        self.cores.get(name).filter(|core| core.enter())
    }

    /// Returns the core of this name. If there is none, it is made by `create`, with the caller as its first
    /// user.
    pub(crate) fn find_or_create(&self, name: &SequenceName, create: impl Fn() -> Core) -> Arc<Core> {
        loop {
            if let Some(core) = self.find(name) {
                return core;
            }
            let created = Arc::new(create());
            let kept = self.cores.get_or_insert(name.clone(), created.clone());
            if let Some(opened) = self.opened.as_ref().filter(|_| Arc::ptr_eq(&kept, &created)) {
                opened.push(Arc::downgrade(&kept));
            }
            // A caller that lost the race uses the winner's core, unless that is already being evicted.
            if Arc::ptr_eq(&kept, &created) || kept.enter() {
                return kept;
            }
            self.forget(&kept);
        }
    }

    /// Removes the name if it still has this core.
    pub(crate) fn forget(&self, core: &Arc<Core>) {
        self.cores.remove_if(&core.name, |kept| Arc::ptr_eq(kept, core));
    }

    /// Keeps the history of a sequence for its next core.
    pub(crate) fn remember(&self, name: &SequenceName, history: &GrantHistory) {
        if history.identity().is_none() {
            return;
        }
        self.evicted.lock().put(name, history.clone());
    }

    /// Removes and returns a kept history, which the new core owns now.
    pub(crate) fn recall(&self, name: &SequenceName) -> GrantHistory {
        self.evicted.lock().take(name).unwrap_or_default()
    }

    /// Returns the history of a sequence that this process has seen in the store; otherwise `None`.
    pub(crate) fn history(&self, name: &SequenceName) -> Option<GrantHistory> {
        if let Some(core) = self.cores.get(name).filter(|core| core.stats.is_met()) {
            let reached = core.stats.identity().zip(core.stats.reached());
            return Some(GrantHistory::up_to(reached.map(|(identity, last)| Reached { identity, last })));
        }
        self.evicted.lock().get(name).cloned()
    }

    /// Notes that this process removed a sequence from the store.
    pub(crate) fn note_removed(&self, name: &SequenceName) {
        self.removed.lock().put(name, ());
    }

    /// Returns whether this process removed a sequence and has not opened it since.
    pub(crate) fn take_removed(&self, name: &SequenceName) -> bool {
        self.removed.lock().take(name).is_some()
    }

    pub(crate) fn cores(&self) -> Vec<Arc<Core>> {
        self.cores.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.cores.len()
    }
}
