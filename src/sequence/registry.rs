//! Name → core, looked up without a lock.
//!
//! # The creation race
//! Several callers may find a name missing at once. Each makes a core; the map keeps the first and hands it
//! to all; the others' are dropped before the actor ever hears of them. A core that is being evicted (see
//! [`Core::evict`]) refuses newcomers, who then remove it and create the next one.
//!
//! # What outlives a core
//! What was seen of an evicted sequence is remembered here, for as many sequences as [`Recent`] holds. So it
//! is still not created anew, and a store that went back in time is still not believed.

use std::fmt;

use crate::name::SequenceName;
use crate::recent::Recent;
use crate::sequence::parts::Core;
use crate::sequence::seen::{Reached, Seen};
use crate::sync::{Arc, Map, Mutex, SegQueue, Weak};

pub(crate) struct Registry {
    cores: Map<SequenceName, Arc<Core>>,
    /// Cores that the task which evicts idle ones does not know yet; `None` if there is no such task.
    opened: Option<SegQueue<Weak<Core>>>,
    /// What was seen of those that were evicted.
    evicted: Mutex<Recent<Seen>>,
}

impl Registry {
    /// One whose cores stay.
    pub(crate) fn new() -> Self {
        Self { cores: Map::new(), opened: None, evicted: Mutex::new(Recent::default()) }
    }

    /// One whose cores are let go of when they are idle.
    pub(crate) fn evicting() -> Self {
        Self { opened: Some(SegQueue::new()), ..Self::new() }
    }

    /// A core that was created and that this has not returned yet.
    pub(crate) fn next_opened(&self) -> Option<Arc<Core>> {
        let opened = self.opened.as_ref()?;
        std::iter::from_fn(|| opened.pop()).find_map(|core| core.upgrade())
    }

    /// The core of this name, which the caller now is a user of.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Core>> {
        self.cores.get(name).filter(|core| core.enter())
    }

    /// The core of this name, made by `create` (whose caller is its first user) if there is none.
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
            // A caller that lost the race uses the winner's core, unless that is being evicted already.
            if Arc::ptr_eq(&kept, &created) || kept.enter() {
                return kept;
            }
            self.forget(&kept);
        }
    }

    /// Removes this very core.
    pub(crate) fn forget(&self, core: &Arc<Core>) {
        self.cores.remove_if(&core.name, |kept| Arc::ptr_eq(kept, core));
    }

    /// What was seen of a sequence, so that it is known when its next core is made.
    pub(crate) fn remember(&self, name: &SequenceName, seen: &Seen) {
        if seen.identity().is_none() {
            return;
        }
        self.evicted.lock().put(name, seen.clone());
    }

    /// Hands over what was remembered: its core has it from now on.
    pub(crate) fn recall(&self, name: &SequenceName) -> Seen {
        self.evicted.lock().take(name).unwrap_or_default()
    }

    /// What is known of a sequence that this process has seen in the store; `None` if it has not.
    pub(crate) fn seen(&self, name: &SequenceName) -> Option<Seen> {
        if let Some(core) = self.cores.get(name).filter(|core| core.stats.is_met()) {
            let reached = core.stats.identity().zip(core.stats.reached());
            return Some(Seen::up_to(reached.map(|(identity, last)| Reached { identity, last })));
        }
        self.evicted.lock().get(name).cloned()
    }

    pub(crate) fn cores(&self) -> Vec<Arc<Core>> {
        self.cores.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.cores.len()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
