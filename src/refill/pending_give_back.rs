//! Ids that may go back to the store.

use crate::sequence::parts::Core;
use crate::store::GiveBack;
use crate::sync::Arc;

/// Ids that can no longer be drawn, while it is unknown whether the store takes them back. Until then they
/// count neither as given back nor as a gap, since neither count may ever go down. Dropped, they are a gap.
pub(crate) struct PendingGiveBack {
    core: Arc<Core>,
    back: GiveBack,
    is_back: bool,
}

impl PendingGiveBack {
    /// Creates a rest of this core, which no longer counts these ids as published.
    pub(crate) fn new(core: Arc<Core>, back: GiveBack) -> Self {
        Self { core, back, is_back: false }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn back(&self) -> &GiveBack {
        &self.back
    }

    /// Counts the ids as given back: the next reserve gets them.
    pub(crate) fn returned(mut self) {
        self.is_back = true;
        self.core.stats.add_given_back(self.back.rest.len());
    }
}

impl Drop for PendingGiveBack {
    fn drop(&mut self) {
        if !self.is_back {
            // Counted like ids revoked in memory. In this order, so that they never count as handed out.
            self.core.stats.gap_revoked(self.back.rest.len());
            self.core.stats.add_published(self.back.rest.len());
        }
    }
}
