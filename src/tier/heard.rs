//! How far a process has heard of each sequence through a window and from the source behind it.
//!
//! A range that is claimed is above all that was heard of before it was asked for, since whatever is in a
//! window was claimed before: else the source went back in time. Ids that are *drawn* are above what was
//! drawn before as long as the sequence has one window. Another one, to which its name or address leads by
//! now, may have a range that was claimed earlier.

use crate::name::SequenceName;
use crate::recent::Recent;
use crate::store::{Change, Grant, Identity};
use crate::sync::Mutex;

#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Recent<Floor>>);

/// What was heard when something was sent. Answers to what was sent side by side come in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    identity: Identity,
    /// The last id that was drawn.
    drawn: u64,
    /// The last that was drawn or claimed.
    reached: u64,
}

impl Heard {
    /// To be called before something is sent.
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
    /// How many ids of a draw are not above those that were drawn before.
    pub(super) fn covers(&self, grant: &Grant) -> u64 {
        let same = self.identity == grant.identity && self.drawn >= grant.range.start();
        if same { (self.drawn - grant.range.start()).saturating_add(1).min(grant.range.len()) } else { 0 }
    }

    /// For a claim that shows that the source went back in time: has it go on after what was heard.
    pub(super) fn gone_back(&self, grant: &Grant) -> Option<(u64, Change)> {
        let same = self.identity == grant.identity && grant.range.start() <= self.reached && self.reached > 0;
        let change =
            Change { next: self.reached.checked_add(1), expect: Some(self.identity), ..Change::default() };
        same.then_some((self.reached, change))
    }
}
