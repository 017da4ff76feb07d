//! The next steps of a process.

use super::state::{At, Process, State};
use super::{Bug, Fate, MAX, STEP, Shelves, Step};

impl Shelves {
    pub(super) fn steps_of(&self, state: &State, process: usize, steps: &mut Vec<Step>) {
        let (left, Process { at, held, last, .. }) = (&state.left, &state.processes[process]);
        match (at, held) {
            (At::Idle, Some(_)) => {
                steps.push(Step::Uses { process });
                if left.returns > 0 {
                    steps.push(Step::Returns { process });
                }
            }
            (At::Idle, None) => self.begins_with(state, process, steps),
            (At::Looked(_) | At::Shelving(_) | At::Clearing(..), _) => {
                steps.push(Step::ReadsShelf { process, count: STEP });
            }
            (At::Taken(_) | At::Comparing(..) | At::Raising, _) => {
                steps.push(Step::ReadsSequence { process });
            }
            (At::Resending(_), _) => steps.push(Step::Resends { process }),
            _ => {
                steps.extend(fates(state).map(|fate| Step::Writes { process, fate }));
                let is_of_the_shelf = matches!(at, At::Taking(..) | At::Adding(..) | At::Marking(..));
                if is_of_the_shelf && left.losses > 0 {
                    steps.push(Step::Writes { process, fate: Fate::SentAgain });
                }
                if matches!(at, At::Adding(..)) && self.bug == Bug::DeniesWhatItDid {
                    steps.push(Step::Writes { process, fate: Fate::Denied });
                }
                let is_of_the_witness = matches!(at, At::Granted(..) | At::Confirmed(_) | At::Unclaiming(_));
                if is_of_the_witness && left.refusals > 0 {
                    steps.push(Step::IsRefused { process });
                }
            }
        }
        if left.crashes > 0 && (*at != At::Idle || held.is_some() || last.is_some()) {
            steps.push(Step::Crashes { process });
        }
    }

    /// The steps of a process without ids.
    fn begins_with(&self, state: &State, process: usize, steps: &mut Vec<Step>) {
        let left = &state.left;
        if left.calls > 0 && state.row.is_none_or(|row| row.next <= MAX) {
            steps.extend(fates(state).map(|fate| Step::Reserves { process, fate }));
        }
        if left.raises > 0 && state.row.is_some_and(|row| row.next < MAX) {
            steps.push(Step::Raises { process });
        }
        let last = state.processes[process].last;
        if !self.has_shelf() || self.bug.taken(state.shelf.as_ref(), last, 1).is_none() {
            return;
        }
        if self.bug == Bug::LooksFirst {
            steps.push(Step::LooksFirst { process });
        } else {
            steps.extend([1, STEP].map(|count| Step::ReadsShelf { process, count }));
        }
    }
}

/// The possible fates of a message.
fn fates(state: &State) -> impl Iterator<Item = Fate> {
    let possible = if state.left.losses > 0 { 3 } else { 1 };
    [Fate::Answered, Fate::ReplyLost, Fate::OnItsWay].into_iter().take(possible)
}
