//! Wrong decisions.

use idmill::IdRange;
use idmill::store::Identity;

use super::rules::{Returned, Shelf};
use super::state::{At, Held, Row, State};

/// A wrong decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    None,
    /// A return to the shelf is sent again after an unknown outcome.
    ReturnsAgain,
    /// The store sends a return again, and reports that it was not executed, although the first one was.
    DeniesWhatItDid,
    /// Ids go to the shelf although the store may have taken them back.
    ShelvesTheUnknown,
    /// Ids are used although the take has an unknown outcome.
    UsesTheUnknown,
    /// Taken ids are used without reading the identity of the sequence.
    NoSecondLook,
    /// The identity of the sequence is read before the shelf, and not after the take.
    LooksFirst,
    /// Ids are returned under the identity that the sequence has by then.
    ReturnsAsCurrent,
    /// A raise decides about a history that the administrator did not know of.
    DecidesUnseen,
    /// The last of the ids that are taken stays on the shelf.
    LeavesTheLast,
    /// Two processes that take the same range write the same text.
    SameTextTwice,
    /// A process takes ids although it has handed out larger ones.
    IgnoresTheFloor,
    /// A raise leaves the shelf as it is.
    SurvivesARaise,
    /// A raise clears the shelf, but leaves no mark.
    LeavesNoMark,
    /// The shelf is cleared after the raise.
    MarksAfterTheRaise,
    /// A raise expects no identity.
    RaisesAnyIdentity,
    /// There is a shelf although processes continue after the store has lost writes.
    ShelfUnderSkip,
    /// The identity is read from a store that refuses to grant ids, since it may have lost writes.
    LookIgnoresTheHistory,
    /// The history is compared only after the take, when an administrator may already have decided.
    ComparesTheHistoryOnce,
    /// A range is a gap if another process has changed the shelf meanwhile.
    NoRetryAfterALostRace,
    /// The first proposal: the ledger keeps the shelf, and a take needs no other claim.
    ShelfInTheLedger,
    /// Taken ids are used without a claim.
    UsesUnclaimed,
    /// Ids are used although their claim has an unknown outcome.
    UsesAnUnknownClaim,
    /// Processes with and without the guard share a shelf.
    UnguardedTakes,
}

impl Bug {
    pub(super) fn taken(
        self,
        seen: Option<&Shelf>,
        last: Option<(Identity, u64)>,
        count: u64,
    ) -> Option<(Shelf, IdRange)> {
        let seen = seen?;
        let last = last.filter(|_| self != Bug::IgnoresTheFloor);
        let (shelf, ids) = seen.taken(last, count, u64::MAX)?;
        if self != Bug::LeavesTheLast {
            return Some((shelf, ids));
        }
        let kept = seen.taken(last, count.saturating_sub(1).max(1), u64::MAX)?.0;
        Some((kept, ids))
    }

    pub(super) fn returned(
        self,
        seen: Option<&Shelf>,
        row: Option<Row>,
        held: Held,
        most: usize,
    ) -> Returned {
        let current = row.filter(|_| self == Bug::ReturnsAsCurrent).map(|row| row.identity);
        let identity = current.unwrap_or(held.identity);
        Shelf::returned(seen, identity, held.range, most)
    }

    pub(super) fn raised(self, seen: Option<&Shelf>, identity: Identity, to: u128) -> Option<Shelf> {
        let raised = Shelf::raised(seen, identity, to)?;
        Some(Shelf { raised: if self == Bug::LeavesNoMark { 0 } else { raised.raised }, ..raised })
    }

    pub(super) fn marks_first(self) -> bool {
        !matches!(self, Bug::SurvivesARaise | Bug::MarksAfterTheRaise)
    }

    /// Whether the history is not compared before the take.
    pub(super) fn looks_once(self) -> bool {
        matches!(self, Bug::LookIgnoresTheHistory | Bug::ComparesTheHistoryOnce)
    }

    pub(super) fn uses_unclaimed(self) -> bool {
        matches!(self, Bug::UsesUnclaimed | Bug::ShelfInTheLedger)
    }

    /// The state of a process after a write with an unknown outcome.
    pub(super) fn unknown(self, state: &mut State, p: usize, at: At) {
        let next = match (at, self) {
            (At::Taking(_, held), Bug::UsesTheUnknown) => At::Taken(held),
            (At::Confirmed(held), Bug::UsesAnUnknownClaim) => return state.gets(p, held),
            (At::Adding(_, held), Bug::ReturnsAgain) | (At::GivingBack(held), Bug::ShelvesTheUnknown) => {
                At::Shelving(held)
            }
            // A mark does no harm if it is written twice.
            (At::Marking(_, raise), _) => At::Clearing(raise),
            // The ids are a gap.
            _ => At::Idle,
        };
        state.processes[p].at = next;
    }
}
