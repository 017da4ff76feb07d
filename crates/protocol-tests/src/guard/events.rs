//! Events of the store and the witness from outside: restores, changes by hand, unguarded draws.

use super::state::State;
use super::{Guard, MAX, Step};
use crate::promises::UNIQUE;

impl Guard {
    pub(super) fn befalls(state: &State, steps: &mut Vec<Step>) {
        let left = &state.left;
        if state.store.is_some() {
            if left.resets > 0 {
                steps.push(Step::IsSetBack);
            }
            if left.epochs > 0 {
                steps.extend([1, 2].map(|by| Step::EpochGrows { by }));
            }
        }
        if left.unguarded > 0 && state.store.is_none_or(|row| row.next <= MAX) {
            steps.push(Step::IsDrawnUnguarded);
        }
        if left.backs > 0 {
            steps.extend((0..state.past.len()).map(|to| Step::StoreGoesBack { to }));
        }
        if left.witness_backs > 0 {
            steps.extend((0..state.ledgers.len()).map(|to| Step::WitnessGoesBack { to }));
        }
    }

    /// Applies an event of the store or the witness to the state.
    pub(super) fn befell(&self, state: &mut State, step: Step) {
        match step {
            Step::Arrives { flight } => {
                let write = state.flights.remove(flight);
                state.does(&write);
            }
            Step::IsSetBack => {
                state.left.resets -= 1;
                if let Some(row) = &mut state.store {
                    (row.identity.epoch, row.next) = (row.identity.epoch + 1, 1);
                }
                state.protects_below();
            }
            Step::EpochGrows { by } => {
                state.left.epochs -= 1;
                if let Some(row) = &mut state.store {
                    row.identity.epoch += by;
                }
            }
            Step::IsDrawnUnguarded => {
                state.left.unguarded -= 1;
                let is_whole =
                    self.is_sound(state) && self.budget.removals + self.budget.announced_resets == 0;
                let is_guarded = state
                    .ledger
                    .as_ref()
                    .zip(state.store)
                    .is_some_and(|(ledger, row)| ledger.identity.incarnation == row.identity.incarnation);
                let is_counted = is_whole || self.is_sound(state) && is_guarded && !state.has_task();
                let row = state.created();
                let id = row.next;
                row.next += 1;
                let used = state.used.last().copied().unwrap_or_default();
                if is_whole && (used | state.unguarded) & (1 << id) != 0 {
                    state.broken = Some(UNIQUE);
                }
                state.unguarded |= u16::from(is_counted) << id;
            }
            Step::StoreGoesBack { to } => {
                state.left.backs -= 1;
                state.store = state.past[to];
                state.protects_below();
            }
            Step::WitnessGoesBack { to } => {
                state.left.witness_backs -= 1;
                state.ledger = state.ledgers[to].clone();
                state.protects_below();
            }
            _ => unreachable!("a step of a process"),
        }
    }
}
