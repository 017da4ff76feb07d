//! Events from outside: resets, revocations, removals, restores, failovers.

use super::state::{Budget, State};
use super::{Bug, STEP, Shelves, Step};
use crate::promises::KEPT;

impl Shelves {
    pub(super) fn befalls(&self, state: &State, steps: &mut Vec<Step>) {
        let left = &state.left;
        if state.row.is_some() {
            let events = [
                (left.resets, Step::IsReset),
                (left.revocations, Step::IsRevoked),
                (left.removals, Step::IsRemoved),
            ];
            steps.extend(events.into_iter().filter(|(left, _)| *left > 0).map(|(_, step)| step));
        }
        if left.backs + left.failovers > 0 {
            steps.extend((0..state.past.len()).map(|to| Step::GoesBack { to }));
        }
        if left.witness_backs > 0 {
            steps.extend((0..state.ledgers.len()).map(|to| Step::WitnessGoesBack { to }));
        }
        let has_ranges = state.shelf.as_ref().is_some_and(|shelf| !shelf.ranges.is_empty());
        if left.unguarded > 0 && self.bug == Bug::UnguardedTakes && has_ranges {
            steps.push(Step::TakesUnguarded);
        }
    }

    /// Applies an event to the state.
    pub(super) fn befell(&self, state: &mut State, step: Step) {
        match step {
            Step::Arrives { flight } => {
                let write = state.flights.remove(flight);
                self.does(state, &write);
            }
            Step::IsReset => {
                state.left.resets -= 1;
                if let Some(row) = &mut state.row {
                    (row.identity.epoch, row.next) = (row.identity.epoch + 1, 1);
                }
                state.changes_identity(true);
            }
            Step::IsRevoked => {
                state.left.revocations -= 1;
                if let Some(row) = &mut state.row {
                    row.identity.epoch += 1;
                }
                state.changes_identity(false);
            }
            Step::IsRemoved => {
                state.left.removals -= 1;
                state.row = None;
            }
            Step::GoesBack { to } => {
                let is_failover = state.left.failovers > 0;
                let left = if is_failover { &mut state.left.failovers } else { &mut state.left.backs };
                *left -= 1;
                state.here += u8::from(is_failover);
                let (row, shelf) = state.past[to].clone();
                state.row = row;
                if self.bug != Bug::ShelfInTheLedger {
                    state.shelf = shelf;
                }
                state.changes_identity(false);
            }
            Step::WitnessGoesBack { to } => {
                state.left.witness_backs -= 1;
                let (ledger, shelf) = state.ledgers[to].clone();
                state.ledger = ledger;
                if self.bug == Bug::ShelfInTheLedger {
                    state.shelf = shelf;
                }
            }
            Step::TakesUnguarded => {
                state.left.unguarded -= 1;
                let Some((mut shelf, ids)) =
                    state.shelf.as_ref().and_then(|shelf| shelf.taken(None, 2, u64::MAX))
                else {
                    return;
                };
                shelf.stamp = state.renumbers();
                let life = usize::from(state.life(shelf.identity));
                for id in ids {
                    state.used[life] |= 1 << id;
                }
                state.shelf = Some(shelf);
            }
            _ => unreachable!("a step of a process"),
        }
    }

    /// A process has claimed the first ids, and handed them out. The first claim of all would refuse the ids
    /// below it.
    pub(super) fn begins_guarded(&self, state: &mut State) {
        let first = self.grants(state).expect("a new sequence has ids");
        state.ledger = self.judged(state, None, &first).ok();
        state.used[0] |= first.range.iter().fold(0, |ids, id| ids | 1 << id);
        state.reached = 1 + STEP;
    }

    /// Keeps the states that the store and the witness can go back to.
    pub(super) fn remembers(&self, before: &State, state: &mut State) {
        let last = state.lives.last().map(|(_, life)| *life);
        if let Some(row) = state.row.filter(|row| Some(state.life(row.identity)) == last) {
            state.reached = state.reached.max(row.next);
        }
        let (row, shelf) = (before.row, &before.shelf);
        let is_another = (row, shelf) != (state.row, &state.shelf);
        if state.left.backs + state.left.failovers > 0 && row.is_some() && is_another {
            let earlier = (row, shelf.clone());
            if !state.past.contains(&earlier) {
                state.past.push(earlier);
            }
        }
        if state.left.witness_backs > 0 && before.ledger.is_some() {
            let shelf = shelf.clone().filter(|_| self.bug == Bug::ShelfInTheLedger);
            let earlier = (before.ledger.clone(), shelf);
            if !state.ledgers.contains(&earlier) {
                state.ledgers.push(earlier);
            }
        }
    }

    pub(super) fn checks_promises(&self, state: &mut State) {
        let Budget { backs, failovers, witness_backs, .. } = self.budget;
        if backs + failovers + witness_backs == 0 {
            state.checks_places();
        }
        if self.is_quiet() && state.broken.is_none() {
            let reserved = state.row.map_or(0, |row| (1_u16 << row.next) - 2);
            if state.accounted() & reserved != reserved {
                state.broken = Some(KEPT);
            }
        }
    }
}
