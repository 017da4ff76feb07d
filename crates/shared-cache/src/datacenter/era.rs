//! Eras of a sequence, and the detection of rows that went back in time.
//!
//! A sequence can be recreated or set while windows hold ids of it. The same write changes the counter and
//! the *era*, and removes all claims. A window of another era is not used; [`prepare`] makes it empty for the
//! new era. The global row is read *after* the window, so if the eras differ, the global era is the newer
//! one.

use super::{GlobalRow, WindowRow};
use idmill::store::Identity;

/// The era of ids. Ranges of different eras may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Era {
    /// The identity of the sequence.
    pub identity: Identity,
    /// How many times a `set` of `next` recalled the ids in windows; never less than the epoch.
    pub recalls: u64,
}

impl Era {
    fn is_older_than(self, other: Self) -> bool {
        self.identity.incarnation == other.identity.incarnation && self.recalls < other.recalls
    }
}

/// The step that brings a missing or old window to the era of the global row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prepare {
    /// The window is current: draw from it.
    Ready,
    /// Insert this row if there is none.
    Create(WindowRow),
    /// Send this write.
    Reset(Reset),
    /// The window was written after it was read. Read it again, and compare it with this floor.
    Again(Floor),
    /// One of the rows went back in time. Serve nothing.
    Corrupt(&'static str),
}

/// Empties a window of another era. Applied only if the window still has the era that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reset {
    /// The condition: the era.
    pub seen: Era,
    /// The new row.
    pub row: WindowRow,
}

impl Reset {
    /// Returns whether the condition holds.
    pub fn holds(&self, row: &WindowRow) -> bool {
        row.era == self.seen
    }

    /// Applies the write to a row.
    pub fn apply(&self, row: &mut WindowRow) {
        *row = self.row;
    }
}

/// Returns the step for a window. `global` was read *after* the window, and `floor` was known *before* the
/// window was read.
///
/// A missing or old window may be replaced by an empty one, with one exception. A claim of this era in the
/// global row proves that a window of this era existed at the time of the claim. If a second read does not
/// find it, the window was lost or restored. Creating it would install the recorded claim twice.
pub fn prepare(window: Option<&WindowRow>, global: &GlobalRow, floor: Option<&Floor>) -> Prepare {
    let empty = WindowRow::empty(global.era, global.bounds);
    match window {
        Some(window) if window.era == global.era => Prepare::Ready,
        _ if floor.is_some_and(|floor| floor.era == global.era) => {
            Prepare::Corrupt("the window was lost, or went back in time")
        }
        Some(window) if global.era.is_older_than(window.era) => {
            Prepare::Corrupt("the window is newer than the global counter")
        }
        _ => match (Floor::of_global(global), window) {
            (Some(floor), _) => Prepare::Again(floor),
            (None, Some(window)) => Prepare::Reset(Reset { seen: window.era, row: empty }),
            (None, None) => Prepare::Create(empty),
        },
    }
}

/// A lower bound for a window that is read *after* the bound was known. Reads are linearizable, so a window
/// below it went back in time: it was restored from a backup, or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The era.
    pub era: Era,
    /// The generation.
    pub generation: u64,
    /// The next id; zero if only the generation is known.
    pub next: u128,
}

impl Floor {
    /// Returns the floor that a window sets for later reads.
    pub fn of_window(row: &WindowRow) -> Self {
        Self { era: row.era, generation: row.generation, next: row.current.start }
    }

    /// Returns the floor that a claim sets, if there is one: at the time of the claim, the window had this
    /// era and the previous generation.
    pub fn of_global(row: &GlobalRow) -> Option<Self> {
        let generation = row.claim?.token.saturating_sub(1);
        Some(Self { era: row.era, generation, next: 0 })
    }

    /// Returns whether a window that was read after this floor is plausible.
    pub fn allows(&self, window: Option<&WindowRow>) -> bool {
        let Some(window) = window else { return false };
        if window.era == self.era {
            return window.generation >= self.generation && window.current.start >= self.next;
        }
        !window.era.is_older_than(self.era)
    }

    /// Returns the higher of two floors. `other` is the newer one.
    #[must_use]
    pub fn raised(self, other: Self) -> Self {
        if self.era != other.era {
            return if other.era.is_older_than(self.era) { self } else { other };
        }
        let (generation, next) = (self.generation.max(other.generation), self.next.max(other.next));
        Self { era: self.era, generation, next }
    }
}
