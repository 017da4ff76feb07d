//! Which life of a sequence a row belongs to, and rows that went back in time.
//!
//! The sequence can be created anew or set while windows hold ids of it: the *era* changes, in the same
//! write that changes the counter and forgets all claims. A window of another era is not served, but made
//! empty for the new one by [`prepare`]. Since the global row is read *after* the window, its era is the
//! newer one whenever the two differ.

use super::{GlobalRow, WindowRow};
use idmill::store::Identity;

/// Which life of a sequence ids belong to. Ranges of different eras may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Era {
    /// The sequence.
    pub identity: Identity,
    /// How often what windows hold was recalled, by a `set` that moved `next`; never less than the epoch.
    pub recalls: u64,
}

impl Era {
    fn is_older_than(self, other: Self) -> bool {
        self.identity.incarnation == other.identity.incarnation && self.recalls < other.recalls
    }
}

/// How a window that is missing or of another era comes to be of the global row's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prepare {
    /// It is: draw from it.
    Ready,
    /// Insert this row, if there is none.
    Create(WindowRow),
    /// Send this.
    Reset(Reset),
    /// The window has been written since it was read: read it again, and hold it against this.
    Again(Floor),
    /// One of the rows went back in time: nothing may be served.
    Corrupt(&'static str),
}

/// Makes a window of another era an empty one: applied only if it still has the era that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reset {
    /// The condition: the era.
    pub seen: Era,
    /// What the window becomes.
    pub row: WindowRow,
}

impl Reset {
    /// Whether the condition holds.
    pub fn holds(&self, row: &WindowRow) -> bool {
        row.era == self.seen
    }

    /// What it writes.
    pub fn apply(&self, row: &mut WindowRow) {
        *row = self.row;
    }
}

/// What to do with a window, given a global row that was read *after* it, and the floor
/// that was known *before* it was.
///
/// A window without a range of this era may be made; but where the global row has a claim of this era, there
/// was such a window when it was claimed, so one that is not there on a second look was lost or put back:
/// making it anew would install the recorded claim a second time.
pub fn prepare(window: Option<&WindowRow>, global: &GlobalRow, floor: Option<&Floor>) -> Prepare {
    let empty = WindowRow::empty(global.era, global.bounds);
    match window {
        Some(window) if window.era == global.era => Prepare::Ready,
        _ if floor.is_some_and(|floor| floor.era == global.era) => {
            Prepare::Corrupt("the window was lost, or put back to an earlier time")
        }
        Some(window) if global.era.is_older_than(window.era) => {
            Prepare::Corrupt("the window is of a later time than the global counter")
        }
        _ => match (Floor::of_global(global), window) {
            (Some(floor), _) => Prepare::Again(floor),
            (None, Some(window)) => Prepare::Reset(Reset { seen: window.era, row: empty }),
            (None, None) => Prepare::Create(empty),
        },
    }
}

/// The least that a window has to be when it is read *after* this was known. Reads being linearizable, a
/// window that is less went back in time: it was restored from a backup, or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The era.
    pub era: Era,
    /// The generation.
    pub generation: u64,
    /// The next id; zero where only the generation is known.
    pub next: u128,
}

impl Floor {
    /// What a window that was read tells of those that are read later.
    pub fn of_window(row: &WindowRow) -> Self {
        Self { era: row.era, generation: row.generation, next: row.current.start }
    }

    /// What a claim tells, if there is one: the window was of this era, and of the generation
    /// before it, when it was claimed.
    pub fn of_global(row: &GlobalRow) -> Option<Self> {
        let generation = row.claim?.token.saturating_sub(1);
        Some(Self { era: row.era, generation, next: 0 })
    }

    /// Whether a window that was read after this was known can be.
    pub fn allows(&self, window: Option<&WindowRow>) -> bool {
        let Some(window) = window else { return false };
        if window.era == self.era {
            return window.generation >= self.generation && window.current.start >= self.next;
        }
        !window.era.is_older_than(self.era)
    }

    /// The higher of two, of which `other` was learnt later.
    #[must_use]
    pub fn raised(self, other: Self) -> Self {
        if self.era != other.era {
            return if other.era.is_older_than(self.era) { self } else { other };
        }
        let (generation, next) = (self.generation.max(other.generation), self.next.max(other.next));
        Self { era: self.era, generation, next }
    }
}
