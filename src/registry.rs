//! Name → core, looked up without a lock.
//!
//! # The creation race
//! Several callers may find a name missing at once. Each makes a core; the map keeps the first and hands it to all;
//! the others' are dropped before the actor ever hears of them. A core that is being evicted (see
//! [`Core::evict`]) refuses newcomers, who then remove it and create the next one.

use crate::core::Core;
use crate::name::SequenceName;
use crate::sync::{Arc, Map};

#[derive(Debug)]
pub(crate) struct Registry(Map<SequenceName, Arc<Core>>);

impl Registry {
    pub(crate) fn new() -> Self {
        Self(Map::new())
    }

    /// The core of this name, which the caller now is a user of.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Core>> {
        self.0.get(name).filter(|core| core.enter())
    }

    /// The core of this name, made by `create` (whose caller is its first user) if there is none.
    pub(crate) fn find_or_create(&self, name: &SequenceName, create: impl Fn() -> Core) -> Arc<Core> {
        loop {
            if let Some(core) = self.find(name) {
                return core;
            }
            let created = Arc::new(create());
            let kept = self.0.get_or_insert(name.clone(), created.clone());
            // Whoever lost the race becomes a user of the winner's, unless that is being evicted already.
            if Arc::ptr_eq(&kept, &created) || kept.enter() {
                return kept;
            }
            self.forget(&kept);
        }
    }

    /// Removes this very core.
    pub(crate) fn forget(&self, core: &Arc<Core>) {
        self.0.remove_if(&core.name, |kept| Arc::ptr_eq(kept, core));
    }

    pub(crate) fn cores(&self) -> Vec<Arc<Core>> {
        self.0.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
