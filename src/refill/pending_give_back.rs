//! Ids that may go back to the store.

use crate::sequence::core::Core;
use crate::store::GiveBack;
use crate::sync::Arc;

/// Ids that can no longer be drawn, while it is unknown whether the store takes them back. Until that is
/// known, they count neither as given back nor as a gap: neither count may decrease. On drop they become a
/// gap.
pub(crate) struct PendingGiveBack {
    core: Arc<Core>,
    back: GiveBack,
    is_back: bool,
}

impl PendingGiveBack {
    /// Creates a pending give-back. The core must not count these ids as published.
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
            // Count the ids as revoked before adding them to `published`, so that they never count as handed
            // out.
            self.core.stats.gap_revoked(self.back.rest.len());
            self.core.stats.add_published(self.back.rest.len());
        }
    }
}
