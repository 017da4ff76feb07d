//! The largest ids of each sequence that this process got through a window and from its source.
//!
//! Claims ascend, and all ids in a window come from earlier claims. So a new claim is above all ids that were
//! known when the claim was requested; otherwise the source went back in time. *Drawn* ids are above those
//! drawn before, as long as the sequence has one window. If the server's name or address now leads to another
//! window, that window may have a range that was claimed earlier.

use idmill::__private::BoundedMap;
use idmill::SequenceName;
use idmill::store::{Change, Grant, Identity};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct DrawFloors(Mutex<BoundedMap<Floor>>);

/// The known ids when a request was sent. Replies to concurrent requests arrive in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    identity: Identity,
    /// The last id that was drawn.
    drawn: u64,
    /// The last id that was drawn or claimed.
    reached: u64,
}

impl DrawFloors {
    /// Returns the largest ids that are known to be drawn and claimed. Must be called before the request is
    /// sent.
    pub(super) fn floor(&self, name: &SequenceName) -> Option<Floor> {
        self.0.lock().get(name).copied()
    }

    pub(super) fn drew(&self, name: &SequenceName, grant: &Grant) {
        self.raise(name, grant, true);
    }

    pub(super) fn claimed(&self, name: &SequenceName, grant: &Grant) {
        self.raise(name, grant, false);
    }

    fn raise(&self, name: &SequenceName, grant: &Grant, drawn: bool) {
        let Some(last) = grant.range.last() else { return };
        let (mut all, identity) = (self.0.lock(), grant.identity);
        let known = all.get(name).copied().filter(|floor| floor.identity == identity);
        let mut floor = known.unwrap_or(Floor { identity, drawn: 0, reached: 0 });
        floor.reached = floor.reached.max(last);
        if drawn {
            floor.drawn = floor.drawn.max(last);
        }
        all.put(name, floor);
    }
}

impl Floor {
    /// Returns how many ids of a draw are not above those drawn before.
    pub(super) fn covers(&self, grant: &Grant) -> u64 {
        let same = self.identity == grant.identity && self.drawn >= grant.range.start();
        if same { (self.drawn - grant.range.start()).saturating_add(1).min(grant.range.len()) } else { 0 }
    }

    /// If a claim shows that the source went back in time, returns the last known id and the change that
    /// makes the source continue after it.
    pub(super) fn gone_back(&self, grant: &Grant) -> Option<(u64, Change)> {
        let same = self.identity == grant.identity && grant.range.start() <= self.reached && self.reached > 0;
        let change = Change::default().next(self.reached.checked_add(1)).expect(self.identity);
        same.then_some((self.reached, change))
    }
}
