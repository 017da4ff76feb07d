//! The decisions of datacenter windows, without I/O: every conditional write, and the conclusions from its
//! reply. The Cassandra store executes them, and the protocol's models explore them.
//!
//! One row holds the *global* counter with the last claim of each datacenter. One row per datacenter holds
//! its *window*. Every write is conditional on the state that was read. After a write was applied, its
//! condition can never hold again. So it is harmless if a write with an unknown outcome is applied later:
//!
//! 1. [`WindowRow::draw`] takes ids from the window (`next` never repeats a value), or returns
//!    [empty](Draw::Empty). A take without an acknowledgement is a gap. Values read later do not prove that
//!    it was applied.
//! 2. If the window is empty, or [low](WindowRow::low) with nothing preloaded, [`GlobalRow::claim`] sets
//!    aside a range under a token, which is the next generation of the window. A claim under the same token
//!    returns the same range, for any process and also after a crash.
//! 3. [`Install`] puts the range into the window, if the window still has the previous generation.
//!
//! For the detection of rows that went back in time, see [`Floor`].

mod era;

#[cfg(test)]
mod tests;

use super::Claimed;
use idmill::IdRange;
use idmill::store::{Bounds, Grant};

pub use era::{Era, Floor, Prepare, Reset, prepare};

/// Ids `[start, end)`. Wider than an id, because the end of a span with `u64::MAX` is 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first id.
    pub start: u128,
    /// One past the last id.
    pub end: u128,
}

impl Span {
    /// Returns the number of ids.
    pub fn len(self) -> u128 {
        self.end.saturating_sub(self.start)
    }

    /// Returns whether no id is left.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the span as a grant of this era.
    ///
    /// # Panics
    /// If the span is not within the bounds of any sequence.
    pub fn granted(self, era: Era, bounds: Bounds) -> Grant {
        let (start, len) = (u64::try_from(self.start), u64::try_from(self.len()));
        let range = start.ok().zip(len.ok()).and_then(|(start, len)| IdRange::new(start, len));
        let range = range.expect("ids are within bounds, and fewer than 2^64");
        Grant::new(range, era.identity, bounds)
    }
}

impl From<IdRange> for Span {
    fn from(range: IdRange) -> Self {
        Self { start: range.start().into(), end: range.end() }
    }
}

/// The window of one datacenter, from one linearizable read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowRow {
    /// The era of its ids.
    pub era: Era,
    /// The bounds of the sequence when the window was last written from the global row.
    pub bounds: Bounds,
    /// The number of ranges installed in this era.
    pub generation: u64,
    /// The range in use. Its start is the next id.
    pub current: Span,
    /// The next range.
    pub preloaded: Option<Span>,
}

/// The global counter, from one linearizable read in one datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GlobalRow {
    /// The era of the sequence.
    pub era: Era,
    /// The first and the last id.
    pub bounds: Bounds,
    /// The next unclaimed id; one past max if there is none.
    pub next: u128,
    /// The last claim of this datacenter in this era.
    pub claim: Option<Claim>,
}

/// A range that was set aside for one datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The generation of the window after the install.
    pub token: u64,
    /// The ids; never empty.
    pub span: Span,
}

/// The right to claim a range for the window that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The era of that window.
    pub era: Era,
    /// The next generation of the window.
    pub generation: u64,
    /// The end of the last range in that window.
    pub reached: u128,
    /// Whether the window had no id left *in that same read*.
    pub empty: bool,
}

/// The outcome of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The store reported that it was applied.
    Applied,
    /// The store reported that the condition did not hold.
    Refused,
    /// No reply: it may have been applied, or may be applied at any later time.
    Unknown,
}

/// The result of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Draw {
    /// Send this write.
    Take(Take),
    /// Nothing is left: claim a range under this token.
    Empty(Token),
    /// The remaining ids are above the range of the caller's type.
    AboveCeiling,
}

/// Takes ids from the window. Applied only if the era and `next` are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Take {
    /// The condition: the era.
    pub era: Era,
    /// The condition: the value of `next`.
    pub seen: u128,
    /// The new value of `current`.
    pub current: Span,
    /// Whether the preloaded range became the current one, so that nothing is preloaded.
    pub switched: bool,
    /// The ids of the caller, if the write was acknowledged.
    pub ids: Span,
}

/// The result of a [`Take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taken {
    /// The ids belong only to the caller.
    Ids(Span),
    /// The race was lost: read the window again.
    Again,
    /// The ids must not be used. They are a gap if the write was applied.
    Gap,
}

impl WindowRow {
    /// Creates a window without ranges.
    pub fn empty(era: Era, bounds: Bounds) -> Self {
        let start = u128::from(bounds.start());
        Self { era, bounds, generation: 0, current: Span { start, end: start }, preloaded: None }
    }

    /// Takes up to `count` ids (at least 1) up to `ceiling`, and never from two ranges.
    pub fn draw(&self, count: u64, ceiling: u64) -> Draw {
        let switched = self.current.is_empty();
        let Some(from) = (if switched { self.preloaded } else { Some(self.current) }) else {
            return Draw::Empty(self.token(true));
        };
        let end = from.end.min(u128::from(ceiling) + 1);
        if from.start >= end {
            return Draw::AboveCeiling;
        }
        let ids = Span { start: from.start, end: end.min(from.start + u128::from(count.max(1))) };
        let current = Span { start: ids.end, end: from.end };
        Draw::Take(Take { era: self.era, seen: self.current.start, current, switched, ids })
    }

    /// Returns a token for the next claim, if at most `threshold` ids are left and nothing is preloaded.
    pub fn low(&self, threshold: u64) -> Option<Token> {
        let low = self.preloaded.is_none() && self.current.len() <= u128::from(threshold);
        low.then(|| self.token(self.current.is_empty()))
    }

    fn token(&self, empty: bool) -> Token {
        let reached = self.preloaded.map_or(self.current.end, |span| span.end);
        Token { era: self.era, generation: self.generation.saturating_add(1), reached, empty }
    }
}

impl Take {
    /// Returns whether the condition holds.
    pub fn holds(&self, row: &WindowRow) -> bool {
        row.era == self.era && row.current.start == self.seen
    }

    /// Applies the write to a row.
    pub fn apply(&self, row: &mut WindowRow) {
        row.current = self.current;
        if self.switched {
            row.preloaded = None;
        }
    }

    /// Returns the result: ids were taken only if the write was acknowledged.
    pub fn after(&self, outcome: Outcome) -> Taken {
        match outcome {
            Outcome::Applied => Taken::Ids(self.ids),
            Outcome::Refused => Taken::Again,
            Outcome::Unknown => Taken::Gap,
        }
    }
}

/// The next step of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimStep {
    /// The range is already set aside under the token: install it.
    Recorded(Span),
    /// Send this write.
    Send(ClaimWrite),
    /// The window has changed, or the sequence was recalled or recreated: read the window again.
    Stale,
    /// All ids up to the ceiling are claimed. If the window was empty when it was read, the sequence is
    /// exhausted.
    Nothing,
    /// One of the rows went back in time. Serve nothing.
    Corrupt(&'static str),
}

/// Moves the counter and records the claim in one write. Applied only if the era, `next` and max are
/// unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimWrite {
    /// The condition: the era.
    pub era: Era,
    /// The condition: the value of `next`.
    pub seen: u128,
    /// The condition: the last id.
    pub max: u64,
    /// The claim. The new value of `next` is the end of its span.
    pub claim: Claim,
}

impl GlobalRow {
    /// Returns the result of a claim of these ids. The same token always returns the same ids.
    pub fn claimed(&self, ids: Span) -> Claimed {
        Claimed::Range { grant: ids.granted(self.era, self.bounds), recorded: true }
    }

    /// Sets aside `size` ids (at least 1; fewer at the end of the bounds) for the datacenter of the token's
    /// window. The order of the checks matters: an existing claim has priority.
    pub fn claim(&self, token: &Token, size: u64, ceiling: u64) -> ClaimStep {
        if self.era != token.era {
            return ClaimStep::Stale;
        }
        let last = self.claim.map_or(0, |claim| claim.token);
        if let Some(claim) = self.claim.filter(|_| last == token.generation) {
            return ClaimStep::Recorded(claim.span);
        }
        if last > token.generation {
            return ClaimStep::Stale;
        }
        if last + 1 < token.generation || token.reached > self.next {
            return ClaimStep::Corrupt("the window has a range that the global counter does not record");
        }
        let limit = u128::from(self.bounds.max());
        if self.next > limit.min(u128::from(ceiling)) {
            return ClaimStep::Nothing;
        }
        let end = (self.next + u128::from(size.max(1))).min(limit + 1);
        let claim = Claim { token: token.generation, span: Span { start: self.next, end } };
        ClaimStep::Send(ClaimWrite { era: self.era, seen: self.next, max: self.bounds.max(), claim })
    }
}

impl ClaimWrite {
    /// Returns whether the condition holds.
    pub fn holds(&self, row: &GlobalRow) -> bool {
        row.era == self.era && row.next == self.seen && row.bounds.max() == self.max
    }

    /// Writes the datacenter's own column and the counter.
    pub fn apply(&self, row: &mut GlobalRow) {
        row.next = self.claim.span.end;
        row.claim = Some(self.claim);
    }

    /// Returns the range if the write was acknowledged. After any other outcome, read the global row and
    /// claim again under the same token.
    pub fn after(&self, outcome: Outcome) -> Option<Span> {
        (outcome == Outcome::Applied).then_some(self.claim.span)
    }
}

/// Preloads a claimed range. Applied only if the era is unchanged and the window has the generation before
/// the token's.
///
/// The window is read again after every outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Install {
    /// The condition: the era.
    pub era: Era,
    /// The new generation of the window; the condition is the previous generation.
    pub generation: u64,
    /// The range to preload.
    pub preloaded: Span,
    /// The bounds of the sequence, to store in the window.
    pub bounds: Bounds,
}

impl Install {
    /// Creates the install of a span that was claimed under this token.
    pub fn new(token: &Token, span: Span, bounds: Bounds) -> Self {
        Self { era: token.era, generation: token.generation, preloaded: span, bounds }
    }

    /// Returns whether the condition holds.
    pub fn holds(&self, row: &WindowRow) -> bool {
        row.era == self.era && row.generation + 1 == self.generation
    }

    /// Applies the write to a row.
    pub fn apply(&self, row: &mut WindowRow) {
        row.preloaded = Some(self.preloaded);
        row.generation = self.generation;
        row.bounds = self.bounds;
    }
}
