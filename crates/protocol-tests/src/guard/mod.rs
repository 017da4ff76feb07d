//! A store that goes back in time, and the witness that records the ids claimed from it.
//!
//! Each process reserves from the store, reads the ledger, claims the granted range, and uses it. A process
//! may also give unused ids back, or remove or reset the sequence through the guard. Every call may be
//! answered, lose its answer, or be refused, and a write may arrive at any later time. The store may be
//! restored to any earlier state, emptied, set back by hand, given a later epoch, or used without the guard.
//! Processes may crash anywhere.

mod bugs;
mod events;
mod state;

use idmill::IdRange;
use idmill::store::Identity;
use idmill_guard::{Heal, Ledger, Refusal};

pub(crate) use self::bugs::Bug;
use self::state::{At, Granted, Known, Process, Row, State, info};
pub(crate) use self::state::{Budget, Task};
use crate::explore::{Fate, Protocol, sort_by_hash};
use crate::promises::{SERVED, TRUSTED};

/// The last id, at most 15: a state has one bit of a `u16` per id.
const MAX: u64 = 12;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) processes: usize,
    pub(crate) budget: Budget,
    /// Whether the ids of a removed sequence may be granted again.
    pub(crate) forgets: bool,
    /// Maximum number of separate ranges in the ledger.
    pub(crate) kept: usize,
    pub(crate) bug: Bug,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Reserves { process: usize, count: u64 },
    ReadsLedger { process: usize },
    Writes { process: usize, fate: Fate },
    IsRefused { process: usize },
    LooksAtStore { process: usize },
    Uses { process: usize },
    GivesBack { process: usize },
    Begins { process: usize, task: Task },
    Looks { process: usize },
    Crashes { process: usize },
    Arrives { flight: usize },
    IsSetBack,
    EpochGrows { by: u64 },
    IsDrawnUnguarded,
    StoreGoesBack { to: usize },
    WitnessGoesBack { to: usize },
}

impl Guard {
    fn reserves(&self, state: &mut State, p: usize, count: u64) {
        let before = state.past.last().copied().flatten();
        let row = state.created();
        let len = count.min((MAX + 1).saturating_sub(row.next));
        let Some(range) = IdRange::new(row.next, len).filter(|range| !range.is_empty()) else { return };
        row.next += len;
        let granted = Granted { row: self.bug.seen(before, *row), range };
        let At::Looked(seen) = std::mem::take(&mut state.processes[p].at) else {
            unreachable!("a process reads the ledger before it reserves")
        };
        // Any other earlier ledger does not affect the claim.
        let is_below = |seen: &Ledger| {
            seen.identity.incarnation == granted.row.identity.incarnation
                && u128::from(range.start()) < seen.top()
        };
        state.processes[p].at = At::Granted(granted, seen.filter(is_below).map(Box::new));
    }

    fn reads_ledger(&self, state: &mut State, p: usize) {
        let seen = state.ledger.clone();
        state.processes[p].at = match std::mem::take(&mut state.processes[p].at) {
            At::Granted(granted, _)
                if self.bug == Bug::Lookahead && granted.range.end() <= state.processes[p].ahead.into() =>
            {
                At::Holding(granted, state.used.len() - 1)
            }
            At::Granted(granted, before) => self.claims(state, granted, before.as_deref()),
            At::Holding(granted, _) => {
                let released =
                    seen.as_ref().and_then(|seen| seen.release(granted.row.identity, granted.range));
                match (seen, released) {
                    (Some(seen), Some(wanted)) => At::Releasing(granted, seen, wanted),
                    _ => At::Idle,
                }
            }
            At::Announcing(task) => self.announces(state, task),
            At::Confirming(known) => {
                let wanted = seen.as_ref().and_then(|seen| match known.task {
                    Task::Removes { .. } => seen.removed(known.ledger.incarnation),
                    Task::Raises { .. } => seen.raised(),
                    Task::Resets => {
                        let now = Identity { epoch: known.stored.epoch + 1, ..known.stored };
                        seen.reset(known.ledger, now, 1)
                    }
                });
                match (seen, wanted) {
                    (Some(seen), Some(wanted)) => At::Confirmed(known, seen, wanted),
                    // Others confirmed the task, or claimed under another identity.
                    _ if known.task == (Task::Removes { forgets: true }) => At::Forgetting,
                    _ => At::Idle,
                }
            }
            At::Forgetting => at_once(seen, Ledger::forgotten, At::Forgotten),
            At::Withdrawing => at_once(seen, Ledger::taken_back, At::Withdrawn),
            _ => unreachable!("the action is offered only in the states above"),
        };
    }

    fn claims(&self, state: &mut State, granted: Granted, before: Option<&Ledger>) -> At {
        let (seen, is_pending) = (state.ledger.clone(), state.is_pending());
        match self.bug.claim(self.kept, before, seen.as_ref(), &granted) {
            Ok(wanted) => At::Claiming(granted, seen, wanted),
            Err(Refusal::Outdated) => At::Outdated(granted),
            Err(Refusal::Claimed { top, went_back }) => {
                // A store that never went back grants no duplicates, and no ids below earlier claims. (A
                // witness that went back may have lost a give-back, and a pending reset may have been
                // applied.)
                let is_alarm = if before.is_some() { self.is_whole(state) } else { self.is_sound(state) };
                if went_back && !is_pending && is_alarm {
                    state.broken = state.broken.or(Some(TRUSTED));
                }
                // The process may now raise the store although a change is pending.
                state.is_overtaken |= is_pending;
                At::Refused(granted, top)
            }
            Err(Refusal::Recreated { top }) => At::Refused(granted, top),
            Err(Refusal::Replaced { .. } | Refusal::BehindReset { .. }) => At::Foreign(granted, is_pending),
            Err(other) => unreachable!("the model has no refusal {other:?}"),
        }
    }

    fn announces(&self, state: &State, task: Task) -> At {
        let seen = state.ledger.clone();
        let opened = state.store.map(|row| Ledger::opened(&info(&row)));
        if let (Task::Raises { to }, Some(row)) = (task, state.store) {
            let known = Known { task, ledger: row.identity, stored: row.identity };
            let wanted = Ledger::raising(seen.as_ref(), row.identity, to.into());
            return match wanted.filter(|_| self.bug != Bug::RaisesTheStoreOnly) {
                Some(wanted) => At::Announced(known, seen, wanted),
                None => At::Changing(known),
            };
        }
        let Some(ledger) = seen.clone().or(opened) else { return At::Idle };
        let stored = state.store.map_or(ledger.identity, |row| row.identity);
        let wanted = match task {
            Task::Removes { .. } if self.bug == Bug::RemovesWithoutALook => ledger.removing(None),
            Task::Removes { .. } => ledger.removing(state.store.map(|row| (row.identity, row.next.into()))),
            Task::Raises { .. } => return At::Idle,
            Task::Resets if seen.is_none() || stored.incarnation != ledger.identity.incarnation => {
                return At::Idle;
            }
            Task::Resets => ledger.resetting(stored, 1),
        };
        let known = wanted.as_ref().unwrap_or(&ledger).identity;
        let known = Known { task, ledger: known, stored };
        match wanted {
            Some(_) if self.bug == Bug::ToldLast => At::Changing(known),
            Some(wanted) => At::Announced(known, seen, self.bug.announced(wanted)),
            None => At::Changing(known),
        }
    }

    /// Whether the store and the witness never lost a write, and no task was begun: lost replies, crashes and
    /// refusals do not make the store grant ids below earlier claims.
    fn is_whole(&self, state: &State) -> bool {
        let harmful = |budget: &Budget| {
            [budget.backs, budget.witness_backs, budget.resets, budget.removals, budget.announced_resets]
        };
        harmful(&state.left) == harmful(&self.budget)
    }

    /// Whether no event so far could make the store grant ids twice, or leave a task half done.
    fn is_sound(&self, state: &State) -> bool {
        let harmful = |budget: &Budget| {
            [
                budget.backs,
                budget.witness_backs,
                budget.resets,
                budget.losses,
                budget.crashes,
                budget.refusals,
            ]
        };
        harmful(&state.left) == harmful(&self.budget) && !state.is_overtaken
    }

    fn writes(&self, state: &mut State, p: usize, fate: Fate) {
        let at = state.processes[p].at.clone();
        let Some((write, ..)) = at.write(0) else {
            unreachable!("the action is offered only with a pending write")
        };
        let before = state.store;
        let outcome = match fate {
            Fate::OnItsWay => {
                state.flights.push(write.clone());
                None
            }
            Fate::Answered => Some(state.does(&write)),
            Fate::ReplyLost => {
                state.does(&write);
                None
            }
        };
        if let (At::Claiming(granted, ..), Bug::Lookahead) = (&at, self.bug) {
            state.processes[p].ahead = u64::try_from(granted.range.end()).expect("small") + 2;
        }
        // Use the latest life of the sequence, which this write may have begun.
        let life = state.used.len() - 1;
        let (_, done, refused) = at.write(life).expect("as above");
        state.processes[p].at = match outcome {
            Some(true) => done,
            Some(false) => refused,
            None => self.bug.unknown(&at, life),
        };
        state.remember(before);
    }

    fn looks_at_store(&self, state: &mut State, p: usize) {
        state.processes[p].at = match state.processes[p].at {
            At::Refused(granted, top) => {
                let top = if self.bug == Bug::HealsToItsOwnEnd { granted.range.end() } else { top };
                match state.store.map(|row| Heal::of(&info(&row), granted.row.identity, top)) {
                    Some(Heal::Raise(next)) => At::Healing(granted, next),
                    _ => At::Idle,
                }
            }
            At::Foreign(granted, was_pending) => {
                let is_alarm = !is_outdated(state, &granted) || self.bug == Bug::AlarmsUnseen;
                // The administrator is alarmed, which must not happen if the store was never changed from
                // outside.
                if is_alarm && !was_pending && !state.is_pending() && self.is_sound(state) {
                    state.broken = state.broken.or(Some(TRUSTED));
                }
                At::Idle
            }
            _ => unreachable!("the action is offered only in the states above"),
        };
    }

    /// Whether a single process without faults gets an id, or an error with the reason.
    fn is_served(&self, state: &State) -> bool {
        let mut state = State { broken: None, flights: Vec::new(), ..state.clone() };
        let (p, mut reserves) = (0, 0);
        state.processes[p].at = At::Idle;
        // One reserve may be refused; the next one is sent after the store's `next` is raised.
        while reserves <= 3 {
            match state.processes[p].at {
                At::Idle => {
                    if state.store.is_some_and(|row| row.next > MAX) {
                        return true;
                    }
                    reserves += 1;
                    state.processes[p].at = At::Looked(state.ledger.clone());
                    self.reserves(&mut state, p, 1);
                }
                At::Granted(..) => self.reads_ledger(&mut state, p),
                At::Refused(granted, top) => {
                    let healing = state.store.map(|row| Heal::of(&info(&row), granted.row.identity, top));
                    if healing == Some(Heal::Exhausted) {
                        return true;
                    }
                    self.looks_at_store(&mut state, p);
                }
                // Draws fail until an administrator decides.
                At::Foreign(granted, _) if !is_outdated(&state, &granted) => return true,
                At::Foreign(..) => self.looks_at_store(&mut state, p),
                At::Holding(..) => return true,
                _ => self.writes(&mut state, p, Fate::Answered),
            }
        }
        false
    }

    fn steps_of(&self, state: &State, process: usize, steps: &mut Vec<Step>) {
        let left = &state.left;
        let at = &state.processes[process].at;
        match at {
            At::Idle => {
                if left.calls > 0 {
                    steps.push(Step::Looks { process });
                }
                if let Some(row) = state.store.filter(|_| left.raises > 0) {
                    let task = Task::Raises { to: (row.next + 2).min(MAX) };
                    steps.push(Step::Begins { process, task });
                }
                if left.removals > 0 && state.store.is_some() {
                    steps.push(Step::Begins { process, task: Task::Removes { forgets: self.forgets } });
                }
                if left.announced_resets > 0 && state.store.is_some() {
                    steps.push(Step::Begins { process, task: Task::Resets });
                }
            }
            At::Looked(_) => steps.extend([1, 2].map(|count| Step::Reserves { process, count })),
            At::Granted(..) if self.bug == Bug::ClaimsAfterUse => {
                steps.extend([Step::ReadsLedger { process }, Step::Uses { process }]);
            }
            At::Granted(..) | At::Announcing(_) | At::Confirming(_) | At::Forgetting | At::Withdrawing => {
                steps.push(Step::ReadsLedger { process });
            }
            At::Holding(..) => steps.extend([Step::Uses { process }, Step::GivesBack { process }]),
            At::Refused(..) | At::Foreign(..) => steps.push(Step::LooksAtStore { process }),
            _ => {
                steps.push(Step::Writes { process, fate: Fate::Answered });
                if left.losses > 0 {
                    let lost = [Fate::ReplyLost, Fate::OnItsWay];
                    steps.extend(lost.map(|fate| Step::Writes { process, fate }));
                }
                if left.refusals > 0 && at.refused().is_some() {
                    steps.push(Step::IsRefused { process });
                }
            }
        }
        if left.crashes > 0 && *at != At::Idle {
            steps.push(Step::Crashes { process });
        }
    }
}

/// Returns the state before the write of the ledger that `change` returns; `Idle` if there is no such ledger.
fn at_once(
    seen: Option<Ledger>,
    change: impl Fn(&Ledger) -> Option<Ledger>,
    at: impl Fn(Ledger, Ledger) -> At,
) -> At {
    let wanted = seen.as_ref().and_then(change);
    seen.zip(wanted).map_or(At::Idle, |(seen, wanted)| at(seen, wanted))
}

/// Whether a grant's identity, which differs from the ledger's, is no longer the store's.
fn is_outdated(state: &State, granted: &Granted) -> bool {
    state.store.is_none_or(|row| row.identity != granted.row.identity)
}

impl State {
    /// The sequence, which is created if it does not exist.
    fn created(&mut self) -> &mut Row {
        if self.store.is_none() {
            self.incarnations += 1;
        }
        let identity = Identity { incarnation: self.incarnations.into(), epoch: 0 };
        self.store.get_or_insert(Row { identity, next: 1 })
    }
}

impl Protocol for Guard {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let process = Process { at: At::Idle, ahead: 0 };
        State {
            store: None,
            past: Vec::new(),
            ledger: None,
            ledgers: Vec::new(),
            processes: vec![process; self.processes],
            flights: Vec::new(),
            used: vec![0],
            unguarded: 0,
            has_gone_back: false,
            incarnations: 0,
            left: self.budget,
            is_overtaken: false,
            broken: None,
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        (0..self.processes).for_each(|process| self.steps_of(state, process, steps));
        steps.extend((0..state.flights.len()).map(|flight| Step::Arrives { flight }));
        Self::befalls(state, steps);
    }

    fn after(&self, state: &State, step: Step) -> State {
        let (mut state, before) = (state.clone(), state.store);
        match step {
            Step::Looks { process } => {
                state.left.calls -= 1;
                state.processes[process].at = At::Looked(state.ledger.clone());
            }
            Step::Reserves { process, count } => self.reserves(&mut state, process, count),
            Step::ReadsLedger { process } | Step::GivesBack { process } => {
                self.reads_ledger(&mut state, process);
            }
            Step::Writes { process, fate } => {
                state.left.losses -= u8::from(fate != Fate::Answered);
                self.writes(&mut state, process, fate);
            }
            Step::IsRefused { process } => {
                state.left.refusals -= 1;
                let life = state.used.len() - 1;
                state.processes[process].at = self.bug.refused(&state.processes[process].at, life);
            }
            Step::LooksAtStore { process } => self.looks_at_store(&mut state, process),
            Step::Uses { process } => match std::mem::take(&mut state.processes[process].at) {
                At::Holding(granted, life) => state.uses(&granted, life),
                At::Granted(granted, _) => {
                    let life = state.used.len() - 1;
                    state.uses(&granted, life);
                }
                _ => unreachable!("only offered in these states"),
            },
            Step::Begins { process, task } => {
                let left = &mut state.left;
                *match task {
                    Task::Resets => &mut left.announced_resets,
                    Task::Removes { .. } => &mut left.removals,
                    Task::Raises { .. } => &mut left.raises,
                } -= 1;
                state.processes[process].at = At::Announcing(task);
            }
            Step::Crashes { process } => {
                state.left.crashes -= 1;
                state.processes[process] = Process { at: At::Idle, ahead: 0 };
            }
            other => self.befell(&mut state, other),
        }
        state.remember(before);
        if self.budget.witness_backs == 0 {
            state.ledgers.clear();
        }
        if state.broken.is_none() && !self.is_served(&state) {
            state.broken = Some(SERVED);
        }
        state
    }

    fn canonical(&self, mut state: State) -> State {
        sort_by_hash(&mut state.processes);
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken
    }
}
