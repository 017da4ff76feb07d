//! The effect of each step on the rows and on its process.

use idmill_shared_cache::datacenter::{ClaimStep, ClaimWrite, Install, Outcome, Span, Taken};

use super::{
    Bug, Claim, Claiming, ERA, Fate, Flight, Installing, Process, Refilling, State, Taking, Windows, bits,
    pair, small, span,
};
use crate::promises::{EXHAUSTED, TRUSTED};

impl Windows {
    fn wide(&self, write: Claiming) -> ClaimWrite {
        ClaimWrite { era: ERA, seen: write.seen.into(), max: self.max, claim: write.claim.wide() }
    }

    /// Applies a take, if its condition holds.
    pub(super) fn take(&self, state: &mut State, datacenter: usize, taking: Taking) -> bool {
        let (take, mut row) = (taking.wide(), self.window(state, datacenter));
        if !take.holds(&row) && self.bug != Bug::TakeWithoutCondition {
            return false;
        }
        take.apply(&mut row);
        Self::put_window(state, datacenter, &row);
        true
    }

    pub(super) fn claim(&self, state: &mut State, datacenter: usize, write: Claiming) -> bool {
        let (wide, mut row) = (self.wide(write), self.global(state, datacenter));
        let holds = match self.bug {
            Bug::ClaimByTokenOnly => row.claim.map_or(0, |claim| claim.token) + 1 == wide.claim.token,
            _ => wide.holds(&row),
        };
        if !holds {
            return false;
        }
        wide.apply(&mut row);
        state.next = small(row.next);
        state.claims[datacenter] = row.claim.map(|claim| Claiming::of(&ClaimWrite { claim, ..wide }).claim);
        true
    }

    pub(super) fn install(&self, state: &mut State, datacenter: usize, installing: Installing) -> bool {
        let Installing { generation, ids } = installing;
        let token = Refilling { generation, reached: 0, empty: false }.wide();
        let (install, mut row) =
            (Install::new(&token, span(ids), self.bounds()), self.window(state, datacenter));
        let holds = match self.bug {
            Bug::InstallWithoutGeneration => true,
            Bug::InstallIfNothingPreloaded => row.preloaded.is_none(),
            _ => install.holds(&row),
        };
        if holds {
            install.apply(&mut row);
            Self::put_window(state, datacenter, &row);
        }
        holds
    }

    pub(super) fn reads_global(&self, state: &mut State, datacenter: usize, process: usize) {
        let Process::Claiming { token, blindly } = state.processes[datacenter][process] else { return };
        let mut row = self.global(state, datacenter);
        if self.bug == Bug::NaiveRefill || blindly {
            row.claim =
                (token.generation > 1).then(|| Claim { token: token.generation - 1, ids: (0, 0) }.wide());
        }
        let mut step = row.claim(&token.wide(), self.size, u64::MAX);
        if self.bug == Bug::EndTestedFirst && row.next > u128::from(self.max) {
            step = ClaimStep::Nothing;
        }
        state.processes[datacenter][process] = match step {
            ClaimStep::Recorded(span) => Self::installing(token, span),
            ClaimStep::Send(mut write) => {
                if self.bug == Bug::NoClamp {
                    write.claim.span.end = write.claim.span.start + u128::from(self.size);
                }
                Process::Sending { token, write: Claiming::of(&write) }
            }
            ClaimStep::Stale => Process::Idle,
            ClaimStep::Nothing => {
                if token.empty && !self.is_exhausted(state, datacenter) {
                    state.broken = Some(EXHAUSTED);
                }
                Process::Idle
            }
            ClaimStep::Corrupt(_) => {
                state.broken = Some(TRUSTED);
                Process::Idle
            }
        };
    }

    fn installing(token: Refilling, span: Span) -> Process {
        Process::Installing(Installing { generation: token.generation, ids: pair(span) })
    }

    /// Whether a datacenter has no ids left in its window, claimed for it, or in the sequence.
    pub(super) fn is_exhausted(&self, state: &State, datacenter: usize) -> bool {
        let owed = state.owed(datacenter) | state.windows[datacenter].ids();
        owed == 0 && u64::from(state.next) > self.max
    }

    pub(super) fn writes(&self, state: &mut State, datacenter: usize, process: usize, fate: Fate) {
        let what = std::mem::take(&mut state.processes[datacenter][process]);
        let outcome = |holds| match fate {
            Fate::Answered if holds => Outcome::Applied,
            Fate::Answered => Outcome::Refused,
            Fate::ReplyLost | Fate::OnItsWay => Outcome::Unknown,
        };
        let lands = fate != Fate::OnItsWay;
        match what {
            Process::Taking(taking) => {
                let outcome = outcome(lands && self.take(state, datacenter, taking));
                let lost = fate == Fate::ReplyLost;
                self.took(state, datacenter, taking, outcome, lost);
                if !lands {
                    state.flights.push(Flight::Take(datacenter, taking));
                }
            }
            Process::Sending { token, write } => {
                let outcome = outcome(lands && self.claim(state, datacenter, write));
                let blindly = self.bug == Bug::BlindRetry && outcome == Outcome::Unknown;
                state.processes[datacenter][process] = match self.wide(write).after(outcome) {
                    Some(span) => Self::installing(token, span),
                    None => Process::Claiming { token, blindly },
                };
                if !lands {
                    state.flights.push(Flight::Claim(datacenter, write));
                }
            }
            Process::Installing(installing) => {
                if lands {
                    self.install(state, datacenter, installing);
                } else {
                    state.flights.push(Flight::Install(datacenter, installing));
                }
            }
            Process::Idle | Process::Claiming { .. } => unreachable!("writes nothing"),
        }
        state.flights.sort_unstable();
    }

    /// Handles the outcome of a take.
    fn took(&self, state: &mut State, datacenter: usize, taking: Taking, outcome: Outcome, lost: bool) {
        let believed = match (self.bug, outcome) {
            (Bug::UnknownTakenAsSuccess, Outcome::Unknown) => Outcome::Applied,
            _ => outcome,
        };
        match taking.wide().after(believed) {
            Taken::Ids(ids) => state.hand_out(datacenter, bits(pair(ids)), self.max),
            // In the model the write has arrived, so its ids are a gap only if it was applied.
            Taken::Gap if lost => state.gap_if_gone(datacenter, taking),
            Taken::Again | Taken::Gap => {}
        }
    }
}
