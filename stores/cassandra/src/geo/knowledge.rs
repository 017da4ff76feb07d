//! In-memory state of a process about its sequences. This state can prevent a grant, but never allows an
//! additional grant.

use std::time::Duration;

use idmill::SequenceName;
use idmill_kit::PerSequence;
use idmill_shared_cache::datacenter::{Era, Floor};
use tokio::time::Instant;

/// State by sequence, for the sequences that were used last.
#[derive(Debug, Default)]
pub(super) struct Knowledge(PerSequence<SequenceKnowledge>);

#[derive(Debug, Default)]
struct SequenceKnowledge {
    /// Era of the global row at the last successful read.
    era: Option<Era>,
    /// Time and result of the last check; `None` before the first check and after a local change.
    checked: Option<Checked>,
    floor: Option<Floor>,
    /// Number of local changes to the sequence.
    changes: u64,
    /// Time before which no early refill begins.
    rest: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Checked {
    at: Instant,
    heard: bool,
}

/// Whether the era must be read from the global row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Not needed: the last check is recent. Contains the known era.
    Known(Option<Era>),
    /// Needed, and the draw waits for the reply.
    Now,
    /// Needed, but in the background, because the last check failed. Contains the known era.
    Behind(Option<Era>),
}

impl Knowledge {
    /// Returns whether a check is due. If it is, schedules the next check one interval later, except before
    /// the first check.
    pub(super) fn due(&self, name: &SequenceName, interval: Duration) -> Check {
        self.0.with(name, |known| {
            let now = Instant::now();
            let Some(checked) = &mut known.checked else { return Check::Now };
            if now - checked.at < interval {
                return Check::Known(known.era);
            }
            checked.at = now;
            if checked.heard { Check::Now } else { Check::Behind(known.era) }
        })
    }

    /// Returns the number of local changes, for `heard`. Call this before the global row is read: `heard`
    /// discards the row if the sequence was changed in between.
    pub(super) fn begin(&self, name: &SequenceName) -> u64 {
        self.0.with(name, |known| known.changes)
    }

    /// Stores the era of the global row. If the row could not be read (`None`), the last known era is kept.
    pub(super) fn heard(&self, name: &SequenceName, begun: u64, era: Option<Era>) {
        self.0.with(name, |known| {
            if known.changes == begun {
                known.checked = Some(Checked { at: Instant::now(), heard: era.is_some() });
                known.era = era.or(known.era);
            }
        });
    }

    /// Returns the last known era.
    pub(super) fn era(&self, name: &SequenceName) -> Option<Era> {
        self.0.with(name, |known| known.era)
    }

    /// Returns the lowest state that a window may have. Call this *before* you read the window that is
    /// compared with it.
    pub(super) fn floor(&self, name: &SequenceName) -> Option<Floor> {
        self.0.with(name, |known| known.floor)
    }

    pub(super) fn raise(&self, name: &SequenceName, floor: Floor) {
        self.0.with(name, |known| {
            known.floor = Some(known.floor.map_or(floor, |known| known.raised(floor)));
        });
    }

    /// Delays the next early refill by `rest`, after a claim that gained no ids.
    pub(super) fn refilled(&self, name: &SequenceName, rest: Duration) {
        self.0.with(name, |known| known.rest = Some(Instant::now() + rest));
    }

    pub(super) fn may_refill(&self, name: &SequenceName) -> bool {
        self.0.with(name, |known| known.rest).is_none_or(|until| Instant::now() >= until)
    }

    /// Records a local change or a detected removal, and requires a check before the next draw. The floor of
    /// the window stays valid.
    pub(super) fn forget(&self, name: &SequenceName) {
        self.0.with(name, |known| {
            (known.checked, known.rest) = (None, None);
            known.changes += 1;
        });
    }
}
