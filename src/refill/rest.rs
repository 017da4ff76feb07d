//! Ids that may go back to the store.

use crate::sequence::parts::Core;
use crate::store::GiveBack;
use crate::sync::Arc;

/// Ids that nobody can draw any more, and of which is not known yet whether the store takes them back: until
/// then they are neither that nor a gap, since neither count may ever go down. Dropped, they are a gap.
pub(crate) struct Rest {
    core: Arc<Core>,
    back: GiveBack,
    is_back: bool,
}

impl Rest {
    /// Of this core, which does not count these ids as published.
    pub(crate) fn new(core: Arc<Core>, back: GiveBack) -> Self {
        Self { core, back, is_back: false }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn back(&self) -> &GiveBack {
        &self.back
    }

    /// The store has them: the next reserve gets them.
    pub(crate) fn returned(mut self) {
        self.is_back = true;
        self.core.stats.add_given_back(self.back.rest.len());
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if !self.is_back {
            // As if they had been revoked in memory; in this order, so that they never look handed out.
            self.core.stats.gap_revoked(self.back.rest.len());
            self.core.stats.add_published(self.back.rest.len());
        }
    }
}
