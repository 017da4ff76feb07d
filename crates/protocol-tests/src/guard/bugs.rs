//! Wrong decisions.

use idmill_guard::{Announced, Ledger, Refusal};

use super::state::{At, Granted, Row};

/// A wrong decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A range with ids that were claimed before is accepted anyway.
    MarkAlone,
    /// A range is used although its claim has an unknown outcome.
    UsesTheUnknown,
    /// A range is used although its claim certainly failed.
    UsesTheFailed,
    /// Another incarnation is treated as the same.
    AnyIncarnation,
    /// An earlier epoch starts a separate ledger.
    AnyEpoch,
    /// The rule of the first version: a later epoch is treated as a reset, and starts a new ledger.
    EpochForgets,
    /// The rule of the first version: an announced removal lets another incarnation follow, whether the
    /// store has confirmed it or not.
    PendingOpens,
    /// The rule of the first version: the incarnation that follows a removal may start anywhere.
    RemovalForgets,
    /// The floor is lowered when a reset is announced, before the store has confirmed it.
    ResetsWhenPending,
    /// A process claims more than it was granted, and uses later grants in that range without a claim.
    Lookahead,
    /// The store is raised only to the end of the refused range.
    HealsToItsOwnEnd,
    /// A range is used before it is claimed.
    ClaimsAfterUse,
    /// The lowest claim beyond the limit is dropped without raising the floor.
    ForgetsTheLowest,
    /// A removal is announced after it is done.
    ToldLast,
    /// The rule of the second version: a raise through the guard is not noted in the ledger.
    RaisesTheStoreOnly,
    /// The rule of the second version: a removal ignores the ids that the store granted without a claim.
    RemovesWithoutALook,
    /// The rule of the second version: ids below the earlier claims that were not claimed themselves may be
    /// used.
    HolesAreFree,
    /// Any grant below the earlier claims shows a store that went back, even if ids were given back.
    NothingIsGivenBack,
    /// The rule of the second version, for native sequences: a range and its identity are read in two looks.
    /// If the epoch grows in between, the identity is one that never exists.
    LooksTwice,
    /// A grant of another identity is reported without checking whether it is out of date.
    AlarmsUnseen,
}

impl Bug {
    /// Returns the row that a process sees with its grant.
    pub(super) fn seen(self, before: Option<Row>, mut row: Row) -> Row {
        if self == Bug::LooksTwice && before.is_some_and(|before| before.identity != row.identity) {
            row.identity.epoch += 1;
        }
        row
    }

    /// Claims a granted range, with at most `kept` separate ranges.
    pub(super) fn claim(
        self,
        kept: usize,
        before: Option<&Ledger>,
        seen: Option<&Ledger>,
        granted: &Granted,
    ) -> Result<Ledger, Refusal> {
        let (identity, range) = (granted.row.identity, granted.range);
        let before = before.filter(|_| self != Bug::HolesAreFree);
        let rightly = |seen| Ledger::judge_within(kept, before, seen, identity, range);
        let Some(known) = seen else { return rightly(None) };
        if self.begins_anew(known, granted) {
            return Ok(with(rightly(None)?, |fresh| fresh.version = known.version + 1));
        }
        match (self, rightly(seen)) {
            (Bug::NothingIsGivenBack, Err(Refusal::Outdated)) => {
                Err(Refusal::Claimed { top: known.top(), went_back: true })
            }
            (Bug::MarkAlone, Err(Refusal::Claimed { .. })) => {
                Ok(with(known.clone(), |same| same.version += 1))
            }
            (Bug::ForgetsTheLowest, Ok(wanted))
                if wanted.floor != known.floor
                    && range.start() > 0
                    && u128::from(range.start()) != known.floor =>
            {
                Ok(with(wanted, |wanted| wanted.floor = known.floor))
            }
            (Bug::Lookahead, Ok(wanted)) if wanted.claims.is_empty() => {
                Ok(with(wanted, |wanted| wanted.floor += 2))
            }
            (_, wanted) => wanted,
        }
    }

    fn begins_anew(self, known: &Ledger, granted: &Granted) -> bool {
        let (before, now) = (known.identity, granted.row.identity);
        let is_another = before.incarnation != now.incarnation;
        match self {
            Bug::AnyIncarnation => is_another,
            Bug::AnyEpoch => !is_another && now.epoch < before.epoch,
            Bug::EpochForgets => !is_another && now.epoch > before.epoch,
            Bug::PendingOpens => is_another && known.announced == Some(Announced::Removing),
            Bug::RemovalForgets => is_another && known.announced == Some(Announced::Removed),
            _ => false,
        }
    }

    /// Returns the ledger that is written as the announcement.
    pub(super) fn announced(self, wanted: Ledger) -> Ledger {
        match wanted.announced {
            Some(Announced::Resetting { start }) if self == Bug::ResetsWhenPending => {
                with(wanted, |wanted| (wanted.floor, wanted.claims) = (start, Vec::new()))
            }
            _ => wanted,
        }
    }

    /// The state of a process after a write with an unknown outcome.
    pub(super) fn unknown(self, at: &At, life: usize) -> At {
        match at {
            At::Claiming(granted, ..) if self == Bug::UsesTheUnknown => At::Holding(*granted, life),
            _ => At::Idle,
        }
    }

    /// The state of a process after a write that was certainly refused.
    pub(super) fn refused(self, at: &At, life: usize) -> At {
        match at {
            At::Claiming(granted, ..) if self == Bug::UsesTheFailed => At::Holding(*granted, life),
            _ => at.refused().unwrap_or_default(),
        }
    }
}

fn with(mut ledger: Ledger, change: impl FnOnce(&mut Ledger)) -> Ledger {
    change(&mut ledger);
    ledger
}
