//! What a process remembers of the sequences that it draws from: only ever used to serve less.

use std::collections::HashMap;
use std::time::Duration;

use idmill::SequenceName;
use idmill_shared_cache::datacenter::{Era, Floor};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Of every sequence that was drawn from.
#[derive(Debug, Default)]
pub(super) struct Knowledge(Mutex<HashMap<SequenceName, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Of the global row, when it was heard of last.
    era: Option<Era>,
    /// When a check began, and whether the global row could be read; `None` until the
    /// first, and after a change of ours.
    checked: Option<Checked>,
    floor: Option<Floor>,
    /// How often the sequence was changed from here.
    changes: u64,
    /// No refill ahead of need before this.
    rest: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Checked {
    at: Instant,
    heard: bool,
}

/// Whether to ask the global row for its era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Not now.
    Known(Option<Era>),
    /// Yes, and wait for the answer.
    Now,
    /// Yes, without waiting: the last time there was none.
    Behind(Option<Era>),
}

impl Knowledge {
    /// Whether a check is due; if it is, the next one is due an interval later.
    pub(super) fn due(&self, name: &SequenceName, interval: Duration) -> Check {
        let mut all = self.0.lock();
        let known = all.entry(name.clone()).or_default();
        let now = Instant::now();
        let Some(checked) = &mut known.checked else { return Check::Now };
        if now - checked.at < interval {
            return Check::Known(known.era);
        }
        checked.at = now;
        if checked.heard { Check::Now } else { Check::Behind(known.era) }
    }

    fn with<R>(&self, name: &SequenceName, look: impl FnOnce(&mut Known) -> R) -> R {
        look(self.0.lock().entry(name.clone()).or_default())
    }

    /// To be taken before the global row is read: what is heard counts only if nothing was changed since.
    pub(super) fn begin(&self, name: &SequenceName) -> u64 {
        self.with(name, |known| known.changes)
    }

    /// The era that the global row was read with; `None` if it could not be read.
    pub(super) fn heard(&self, name: &SequenceName, begun: u64, era: Option<Era>) {
        self.with(name, |known| {
            if known.changes == begun {
                known.checked = Some(Checked { at: Instant::now(), heard: era.is_some() });
                known.era = era.or(known.era);
            }
        });
    }

    /// The era heard of last.
    pub(super) fn era(&self, name: &SequenceName) -> Option<Era> {
        self.with(name, |known| known.era)
    }

    /// To be taken *before* a window is read, which is then held against it.
    pub(super) fn floor(&self, name: &SequenceName) -> Option<Floor> {
        self.with(name, |known| known.floor)
    }

    pub(super) fn raise(&self, name: &SequenceName, floor: Floor) {
        self.with(name, |known| {
            known.floor = Some(known.floor.map_or(floor, |known| known.raised(floor)));
        });
    }

    /// A refill ahead of need came to nothing: let it rest.
    pub(super) fn refilled(&self, name: &SequenceName, rest: Duration) {
        self.with(name, |known| known.rest = Some(Instant::now() + rest));
    }

    pub(super) fn may_refill(&self, name: &SequenceName) -> bool {
        self.with(name, |known| known.rest).is_none_or(|until| Instant::now() >= until)
    }

    /// The sequence was changed from here: ask before the next draw. What was
    /// learnt of the window still stands.
    pub(super) fn forget(&self, name: &SequenceName) {
        self.with(name, |known| {
            (known.checked, known.rest) = (None, None);
            known.changes += 1;
        });
    }
}
