//! What datacenter windows decide, without any I/O: every conditional write that a process sends, and what it
//! may conclude from the answer. The Cassandra store executes it, and the protocol's models explore it.
//!
//! One row holds the *global* counter with the last claim of each datacenter; one row in each
//! datacenter holds its *window*. Every write is conditional on what was read, and no condition can
//! hold a second time once its write was applied. So a write whose outcome is unknown may be applied at
//! any later time without harm:
//!
//! 1. [`WindowRow::draw`] takes ids from the window (`next` never has a value twice), or says
//!    that it is [dry](Draw::Dry). A take that was not acknowledged is a gap; that it was one's
//!    own is never inferred from values.
//! 2. Where the window is dry, or [low](WindowRow::low) with nothing preloaded, [`GlobalRow::claim`] sets a
//!    range aside under a token, the generation that the window will have. Any process that claims under the
//!    same token, and the same process after a crash, gets the same range.
//! 3. [`Install`] puts it into the window, if the window is still of the generation before.
//!
//! A row is only trusted as far as it can be: see [`Floor`] for how a row that went back in time is noticed.

mod era;

#[cfg(test)]
mod tests;

use super::Claimed;
use idmill::IdRange;
use idmill::store::{Bounds, Grant};

pub use era::{Era, Floor, Prepare, Reset, prepare};

/// Ids `[start, end)`. Wider than an id, since the end of a span that holds `u64::MAX` is 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first id.
    pub start: u128,
    /// One past the last id.
    pub end: u128,
}

impl Span {
    /// How many ids.
    pub fn len(self) -> u128 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is no id left.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// As a grant of this life of the sequence.
    ///
    /// # Panics
    /// If it is not within the bounds of any sequence.
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

/// The window of one datacenter, as it was read in one linearizable read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowRow {
    /// Which life of the sequence its ids belong to.
    pub era: Era,
    /// The bounds of the sequence when the window was last written from the global row.
    pub bounds: Bounds,
    /// How many ranges were installed in this era.
    pub generation: u64,
    /// What is being taken from; its start is the next id.
    pub current: Span,
    /// What comes after it.
    pub preloaded: Option<Span>,
}

/// The global counter, as one datacenter read it in one linearizable read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GlobalRow {
    /// Which life of the sequence this is.
    pub era: Era,
    /// The first and the last id.
    pub bounds: Bounds,
    /// The next id that no datacenter has claimed; one past max when there is none.
    pub next: u128,
    /// What this datacenter claimed last in this era.
    pub claim: Option<Claim>,
}

/// A range that was set aside for one datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The generation that installing it gives the window.
    pub token: u64,
    /// The ids; never empty.
    pub span: Span,
}

/// The right to claim a range for the window that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The era of the window that was seen.
    pub era: Era,
    /// The generation that the window is to have.
    pub generation: u64,
    /// The end of the last range that was seen in the window.
    pub reached: u128,
    /// Whether the window had no id left *in that very read*.
    pub dry: bool,
}

/// What became of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The store said that it was applied.
    Applied,
    /// The store said that the condition did not hold.
    Refused,
    /// There was no answer: it may have been applied, or may be at any later time.
    Unknown,
}

/// What a draw comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Draw {
    /// Send this.
    Take(Take),
    /// Nothing left: claim a range under this token.
    Dry(Token),
    /// What is left is above what the caller's type can hold.
    AboveCeiling,
}

/// Takes ids from the window: applied only if the era is this one and `next` is what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Take {
    /// The condition: the era.
    pub era: Era,
    /// The condition: what `next` is.
    pub seen: u128,
    /// What current becomes.
    pub current: Span,
    /// Whether the preloaded range became the current one, and nothing is preloaded any more.
    pub switched: bool,
    /// The ids that are the caller's, if this was acknowledged.
    pub ids: Span,
}

/// What comes of a [`Take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taken {
    /// The ids are the caller's alone.
    Ids(Span),
    /// Somebody was faster: read the window again.
    Again,
    /// The ids are nobody's: a gap, if they were taken.
    Gap,
}

impl WindowRow {
    /// A window that nothing was installed in yet.
    pub fn empty(era: Era, bounds: Bounds) -> Self {
        let start = u128::from(bounds.start());
        Self { era, bounds, generation: 0, current: Span { start, end: start }, preloaded: None }
    }

    /// Takes up to `count` ids (at least 1) no larger than `ceiling`; never of two ranges.
    pub fn draw(&self, count: u64, ceiling: u64) -> Draw {
        let switched = self.current.is_empty();
        let Some(from) = (if switched { self.preloaded } else { Some(self.current) }) else {
            return Draw::Dry(self.token(true));
        };
        let end = from.end.min(u128::from(ceiling) + 1);
        if from.start >= end {
            return Draw::AboveCeiling;
        }
        let ids = Span { start: from.start, end: end.min(from.start + u128::from(count.max(1))) };
        let current = Span { start: ids.end, end: from.end };
        Draw::Take(Take { era: self.era, seen: self.current.start, current, switched, ids })
    }

    /// Whether at most `threshold` ids are left and nothing is preloaded: who
    /// sees this claims the next range.
    pub fn low(&self, threshold: u64) -> Option<Token> {
        let low = self.preloaded.is_none() && self.current.len() <= u128::from(threshold);
        low.then(|| self.token(self.current.is_empty()))
    }

    fn token(&self, dry: bool) -> Token {
        let reached = self.preloaded.map_or(self.current.end, |span| span.end);
        Token { era: self.era, generation: self.generation.saturating_add(1), reached, dry }
    }
}

impl Take {
    /// Whether the condition holds.
    pub fn holds(&self, row: &WindowRow) -> bool {
        row.era == self.era && row.current.start == self.seen
    }

    /// What it writes.
    pub fn apply(&self, row: &mut WindowRow) {
        row.current = self.current;
        if self.switched {
            row.preloaded = None;
        }
    }

    /// What may be concluded: only what was acknowledged was taken.
    pub fn after(&self, outcome: Outcome) -> Taken {
        match outcome {
            Outcome::Applied => Taken::Ids(self.ids),
            Outcome::Refused => Taken::Again,
            Outcome::Unknown => Taken::Gap,
        }
    }
}

/// What a claim comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimStep {
    /// This range is set aside under the token already: install it.
    Recorded(Span),
    /// Send this.
    Send(ClaimWrite),
    /// The window has moved on, or the sequence was recalled or created anew: read the window again.
    Stale,
    /// Every id is claimed. Exhausted if the window was dry when it was read; else nothing more to fetch.
    Nothing,
    /// One of the rows went back in time: nothing may be served.
    Corrupt(&'static str),
}

/// Moves the counter and records the claim, in one write: applied only if era,
/// `next` and max are what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimWrite {
    /// The condition: the era.
    pub era: Era,
    /// The condition: what `next` is.
    pub seen: u128,
    /// The condition: the last id.
    pub max: u64,
    /// What `next` becomes: the end of the span.
    pub claim: Claim,
}

impl GlobalRow {
    /// What a source answers that set these ids aside: it will answer the same again under the same token.
    pub fn claimed(&self, ids: Span) -> Claimed {
        Claimed::Range { grant: ids.granted(self.era, self.bounds), recorded: true }
    }

    /// Sets `size` ids (at least 1; fewer where the bounds end) aside for the datacenter whose window gave
    /// out the token. The order of the tests matters: what was claimed already goes before everything.
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
            return ClaimStep::Corrupt("the global counter knows nothing of a range that the window has");
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
    /// Whether the condition holds.
    pub fn holds(&self, row: &GlobalRow) -> bool {
        row.era == self.era && row.next == self.seen && row.bounds.max() == self.max
    }

    /// What it writes, in the datacenter's own column and the counter.
    pub fn apply(&self, row: &mut GlobalRow) {
        row.next = self.claim.span.end;
        row.claim = Some(self.claim);
    }

    /// The range, if it was acknowledged. Refused and unknown are the same: read the global row and claim
    /// again, under the same token.
    pub fn after(&self, outcome: Outcome) -> Option<Span> {
        (outcome == Outcome::Applied).then_some(self.claim.span)
    }
}

/// Preloads a claimed range: applied only if the era is this one and the
/// generation the one before the token's.
///
/// Whatever the outcome, the window is read again: refused, unknown and applied are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Install {
    /// The condition: the era.
    pub era: Era,
    /// The generation that the window gets; the condition is the one before.
    pub generation: u64,
    /// What it preloads.
    pub preloaded: Span,
    /// The bounds of the sequence, which the window then knows.
    pub bounds: Bounds,
}

impl Install {
    /// For what was claimed under this token.
    pub fn new(token: &Token, span: Span, bounds: Bounds) -> Self {
        Self { era: token.era, generation: token.generation, preloaded: span, bounds }
    }

    /// Whether the condition holds.
    pub fn holds(&self, row: &WindowRow) -> bool {
        row.era == self.era && row.generation + 1 == self.generation
    }

    /// What it writes.
    pub fn apply(&self, row: &mut WindowRow) {
        row.preloaded = Some(self.preloaded);
        row.generation = self.generation;
        row.bounds = self.bounds;
    }
}
