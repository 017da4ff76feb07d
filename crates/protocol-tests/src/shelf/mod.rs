//! The shelf of returned ranges: a design that is modelled and not built yet.
//!
//! Each process reserves from the store, hands ids out, and returns the rest: first to the store, and if
//! others reserved meanwhile, to the shelf. A process without ids may take from the shelf. Every call may be
//! answered, lose its answer, or arrive at any later time, and processes may crash anywhere. The sequence is
//! reset, revoked, removed, created again, and raised. The store goes back to an earlier state, under a guard
//! or without one, or a server without the last writes takes over; the witness fails and goes back.

mod bugs;
mod checks;
mod claims;
mod events;
mod rules;
mod state;
mod steps;

use idmill::IdRange;
use idmill::store::Identity;
use idmill_guard::{Ledger, Refusal};

use self::bugs::Bug;
pub(crate) use self::checks::checks;
use self::claims::unclaimed;
use self::rules::{Returned, Shelf};
use self::state::{At, Budget, Held, Process, Raise, Row, State, Swap, Write};
use crate::explore::{Protocol, sort_by_hash};

/// The last id, at most 15: a state has one bit of a `u16` per id.
const MAX: u64 = 12;

/// The number of ids in a reserve.
const STEP: u64 = 2;

/// The policy for a sequence that was last written in another history of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failover {
    /// It reserves and takes nothing, until an administrator has raised the sequence.
    Refuse,
    /// It skips all ids that can be lost. There is no shelf, except under a guard.
    Skip,
}

#[derive(Clone, Copy, Debug)]
struct Shelves {
    processes: usize,
    budget: Budget,
    guarded: bool,
    failover: Failover,
    /// Maximum number of ranges on the shelf.
    most: usize,
    /// Maximum number of separate ranges in the ledger.
    kept: usize,
    bug: Bug,
    /// The only promise to check; `None` for all.
    only: Option<&'static str>,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is executed immediately, if possible, and the answer arrives.
    Answered,
    /// It is executed immediately, if possible, and the answer is lost.
    ReplyLost,
    /// There is no answer, and it may still be executed at any later time.
    OnItsWay,
    /// As before, but the store sends it again, and compares the text.
    SentAgain,
    /// Planted: as before, but the store reports that it was not executed.
    Denied,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Reserves { process: usize, fate: Fate },
    Uses { process: usize },
    Returns { process: usize },
    LooksFirst { process: usize },
    ReadsShelf { process: usize, count: u64 },
    Writes { process: usize, fate: Fate },
    Resends { process: usize },
    ReadsSequence { process: usize },
    IsRefused { process: usize },
    Raises { process: usize },
    Crashes { process: usize },
    Arrives { flight: usize },
    IsReset,
    IsRevoked,
    IsRemoved,
    GoesBack { to: usize },
    WitnessGoesBack { to: usize },
    TakesUnguarded,
}

impl Shelves {
    /// Grants ids of the stored sequence, and creates it first if it is missing.
    fn grants(&self, state: &mut State) -> Option<Held> {
        if state.row.is_none() {
            let incarnation = state.lives.len() as u64 + 1;
            let identity = Identity { incarnation, epoch: 0 };
            state.row = Some(Row { identity, next: 1, history: state.here });
            state.changes_identity(true);
        }
        let here = state.here;
        let row = state.row.as_mut()?;
        if row.history != here {
            if self.failover == Failover::Refuse {
                return None;
            }
            row.next += state.reached - row.next;
            row.history = here;
        }
        let len = STEP.min((MAX + 1).saturating_sub(row.next));
        let range = IdRange::new(row.next, len).filter(|range| !range.is_empty())?;
        row.next += len;
        let identity = row.identity;
        Some(Held { identity, range, life: state.life(identity) })
    }

    fn reserves(&self, state: &mut State, p: usize, fate: Fate) {
        state.left.calls -= 1;
        if fate == Fate::OnItsWay {
            state.flights.push(Write::Reserve);
            return;
        }
        let before = state.ledger.clone();
        let Some(held) = self.grants(state) else { return };
        state.begins(p);
        // A grant at or below the ids that the process had shows that the store went back.
        let last = state.processes[p].last;
        let is_old =
            last.is_some_and(|(identity, last)| identity == held.identity && held.range.start() <= last);
        if fate == Fate::ReplyLost || is_old {
            return;
        }
        if self.guarded {
            state.processes[p].at = At::Granted(held, before.map(Box::new));
        } else {
            state.gets(p, held);
        }
    }

    fn reads_shelf(&self, state: &mut State, p: usize, count: u64) {
        let (seen, number) = (state.shelf.clone(), state.renumbers());
        let stamp = if self.bug == Bug::SameTextTwice { 0 } else { number };
        let swap = |wanted| Swap { seen: seen.clone(), wanted: Shelf { stamp, ..wanted } };
        state.processes[p].at = match std::mem::take(&mut state.processes[p].at) {
            looked @ (At::Idle | At::Looked(_)) => {
                if looked == At::Idle {
                    state.begins(p);
                }
                // The sequence is read with the shelf. Their order does not matter: a history that begins
                // in between shows at the second look.
                let is_here = state.row.is_some_and(|row| row.history == state.here);
                let is_here = is_here || self.bug.looks_once();
                let seen = seen.as_ref().filter(|_| is_here);
                let taken = self.bug.taken(seen, state.processes[p].last, count);
                match taken {
                    Some((wanted, range)) => {
                        let identity = wanted.identity;
                        At::Taking(swap(wanted), Held { identity, range, life: state.life(identity) })
                    }
                    None => At::Idle,
                }
            }
            At::Shelving(held) => match self.bug.returned(seen.as_ref(), state.row, held, self.most) {
                Returned::Add(wanted) => At::Adding(swap(wanted), held),
                Returned::Compare => At::Comparing(held, seen.clone().expect("a shelf of another sequence")),
                Returned::Gap => At::Idle,
            },
            At::Clearing(raise) => match self.bug.raised(seen.as_ref(), raise.identity, raise.to.into()) {
                Some(wanted) => At::Marking(swap(wanted), raise),
                None => At::Raising,
            },
            _ => unreachable!("only offered in these states"),
        };
    }

    /// Reads the identity of the sequence.
    fn reads_sequence(&self, state: &mut State, p: usize) {
        let here = state.here;
        let is_same = state.processes[p].history == here || self.bug.looks_once();
        let is_here = |row: &Row| row.history == here || self.bug == Bug::LookIgnoresTheHistory;
        let (row, stamp) = (state.row, state.renumbers());
        let current = row.filter(is_here).map(|row| row.identity);
        state.processes[p].at = match std::mem::take(&mut state.processes[p].at) {
            At::Taken(held) if current != Some(held.identity) || !is_same => At::Idle,
            At::Taken(held) => return self.confirms(state, p, held),
            At::Comparing(held, _) if current != Some(held.identity) => At::Idle,
            At::Comparing(held, seen) => {
                let Returned::Add(wanted) = Shelf::replacing(held.identity, held.range) else {
                    unreachable!("an empty shelf takes any range")
                };
                At::Adding(Swap { seen: Some(seen), wanted: Shelf { stamp, ..wanted } }, held)
            }
            At::Raising => match row {
                Some(Row { identity, .. }) => {
                    let raise = Raise { identity, to: state.reached + 1, here: state.here };
                    if self.bug.marks_first() { At::Clearing(raise) } else { At::Setting(raise) }
                }
                None => At::Idle,
            },
            _ => unreachable!("only offered in these states"),
        };
    }

    /// The sequence still has the identity of the ids that were taken.
    fn confirms(&self, state: &mut State, p: usize, held: Held) {
        if self.guarded && !self.bug.uses_unclaimed() {
            state.processes[p].at = At::Confirmed(held);
        } else {
            state.gets(p, held);
        }
    }

    /// The next write of a process. A ledger that does not allow the claim is no write.
    fn write(&self, state: &State, at: &At) -> Option<Write> {
        let ledger = state.ledger.as_ref();
        let claim = |before: Option<&Ledger>, held: &Held| self.judged(state, before, held).ok();
        let swapped = |wanted: Option<Ledger>| Some(Write::Ledger(ledger.cloned(), wanted?));
        match at {
            At::Granted(held, before) => swapped(claim(before.as_deref(), held)),
            At::Confirmed(held) => swapped(claim(None, held)),
            At::Unclaiming(held) => {
                swapped(ledger.and_then(|seen| unclaimed(seen, held.identity, held.range)))
            }
            At::GivingBack(held) => Some(Write::GiveBack(*held)),
            At::Taking(swap, _) | At::Adding(swap, _) | At::Marking(swap, ..) => {
                Some(Write::Shelf(swap.clone()))
            }
            At::Setting(raise) => Some(Write::Raise(*raise)),
            _ => None,
        }
    }

    fn writes(&self, state: &mut State, p: usize, fate: Fate) {
        let at = std::mem::take(&mut state.processes[p].at);
        let Some(write) = self.write(state, &at) else {
            state.processes[p].at = self.refused(state, at);
            return;
        };
        let outcome = match fate {
            Fate::Answered => Some(self.does(state, &write)),
            Fate::Denied => {
                self.does(state, &write);
                Some(false)
            }
            Fate::ReplyLost => {
                self.does(state, &write);
                None
            }
            Fate::OnItsWay => {
                state.flights.push(write);
                None
            }
            Fate::SentAgain => {
                state.flights.push(write);
                state.processes[p].at = At::Resending(Box::new(at));
                return;
            }
        };
        self.continues(state, p, at, outcome);
    }

    /// The state of a process whose claim the ledger does not allow, or which cannot return its ids.
    fn refused(&self, state: &State, at: At) -> At {
        match at {
            At::Granted(held, before)
                if self.judged(state, before.as_deref(), &held) == Err(Refusal::Outdated) =>
            {
                At::GivingBack(held)
            }
            // The ids are a gap.
            _ => At::Idle,
        }
    }

    fn judged(&self, state: &State, before: Option<&Ledger>, held: &Held) -> Result<Ledger, Refusal> {
        Ledger::judge_within(self.kept, before, state.ledger.as_ref(), held.identity, held.range)
    }

    /// The store sends a write of the shelf again. If the shelf is neither the text that was read nor the one
    /// to write, the first attempt may have been executed.
    fn resends(&self, state: &mut State, p: usize) {
        let At::Resending(at) = std::mem::take(&mut state.processes[p].at) else {
            unreachable!("only offered in this state")
        };
        let Some(Write::Shelf(swap)) = self.write(state, &at) else { unreachable!("a write of the shelf") };
        let is_done = state.shelf.as_ref() == Some(&swap.wanted) || self.does(state, &Write::Shelf(swap));
        self.continues(state, p, *at, is_done.then_some(true));
    }

    /// The state of a process after a write: executed, not executed, or unknown.
    fn continues(&self, state: &mut State, p: usize, at: At, outcome: Option<bool>) {
        let Some(is_done) = outcome else {
            return self.bug.unknown(state, p, at);
        };
        state.processes[p].at = match (at, is_done) {
            (At::Granted(held, _) | At::Confirmed(held), true) => return state.gets(p, held),
            (At::Granted(..) | At::Confirmed(_), false) => unreachable!("the ledger was just read"),
            (At::Unclaiming(held), true) => At::GivingBack(held),
            (At::GivingBack(held), false) if self.has_shelf() => At::Shelving(held),
            (At::Taking(_, held), true) => match self.bug {
                Bug::NoSecondLook | Bug::LooksFirst => return self.confirms(state, p, held),
                _ => At::Taken(held),
            },
            (At::Adding(_, held), false) if self.bug != Bug::NoRetryAfterALostRace => At::Shelving(held),
            (At::Marking(_, raise), true) => match self.bug {
                Bug::MarksAfterTheRaise => At::Idle,
                _ => At::Setting(raise),
            },
            (At::Marking(_, raise), false) => At::Clearing(raise),
            (At::Setting(raise), true) if self.bug == Bug::MarksAfterTheRaise => At::Clearing(raise),
            (At::Setting(..), false) => At::Raising,
            _ => At::Idle,
        };
    }

    fn does(&self, state: &mut State, write: &Write) -> bool {
        let here = state.here;
        match write {
            Write::Reserve => self.grants(state).is_some(),
            Write::Shelf(swap) => {
                let holds = state.shelf == swap.seen;
                if holds {
                    state.shelf = Some(swap.wanted.clone());
                }
                holds
            }
            Write::Ledger(seen, wanted) => {
                let holds = state.ledger == *seen;
                if holds {
                    state.ledger = Some(wanted.clone());
                }
                holds
            }
            Write::GiveBack(held) => {
                let is_last = |row: &&mut Row| {
                    row.identity == held.identity
                        && row.history == here
                        && u128::from(row.next) == held.range.end()
                };
                let row = state.row.as_mut().filter(is_last);
                row.map(|row| row.next = held.range.start()).is_some()
            }
            Write::Raise(Raise { identity, to, here: seen }) => {
                let is_expected =
                    |row: &&mut Row| row.identity == *identity || self.bug == Bug::RaisesAnyIdentity;
                // A sequence that has reached the id is not raised.
                let row = state.row.as_mut().filter(is_expected).filter(|row| row.next < *to);
                let Some(row) = row else { return false };
                row.next = *to;
                if *seen == here || self.bug == Bug::DecidesUnseen {
                    row.history = here;
                }
                state.raised = *to;
                true
            }
        }
    }

    fn has_shelf(&self) -> bool {
        self.guarded || self.failover != Failover::Skip || self.bug == Bug::ShelfUnderSkip
    }

    /// Whether ids repeat with or without a shelf: a store goes back, and nothing detects it.
    fn repeats(&self) -> bool {
        !self.guarded && self.budget.backs > 0
    }

    /// Whether nothing happens but reserves and returns.
    fn is_quiet(&self) -> bool {
        let Budget { calls, returns, .. } = self.budget;
        self.budget == Budget { calls, returns, ..Budget::default() }
    }
}

impl Protocol for Shelves {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let mut state = State {
            row: None,
            shelf: None,
            here: 0,
            past: Vec::new(),
            ledger: None,
            ledgers: Vec::new(),
            processes: vec![Process::default(); self.processes],
            flights: Vec::new(),
            lives: Vec::new(),
            used: Vec::new(),
            raised: 0,
            reached: 1,
            left: self.budget,
            broken: None,
        };
        if self.guarded {
            self.begins_guarded(&mut state);
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        for process in 0..self.processes {
            self.steps_of(state, process, steps);
        }
        steps.extend((0..state.flights.len()).map(|flight| Step::Arrives { flight }));
        self.befalls(state, steps);
    }

    fn after(&self, state: &State, step: Step) -> State {
        let (before, mut state) = (state, state.clone());
        match step {
            Step::Reserves { process, fate } => {
                state.left.losses -= u8::from(fate != Fate::Answered);
                self.reserves(&mut state, process, fate);
            }
            Step::Uses { process } => state.uses(process, self.repeats()),
            Step::Returns { process } => {
                state.left.returns -= 1;
                if let Some(held) = state.processes[process].held.take() {
                    let is_claimed = self.guarded && self.bug != Bug::ShelfInTheLedger;
                    state.processes[process].at =
                        if is_claimed { At::Unclaiming(held) } else { At::GivingBack(held) };
                }
            }
            Step::LooksFirst { process } => {
                state.begins(process);
                state.processes[process].at = state.row.map_or(At::Idle, |row| At::Looked(row.identity));
            }
            Step::ReadsShelf { process, count } => self.reads_shelf(&mut state, process, count),
            Step::Writes { process, fate } => {
                state.left.losses -= u8::from(!matches!(fate, Fate::Answered | Fate::Denied));
                self.writes(&mut state, process, fate);
            }
            Step::Resends { process } => self.resends(&mut state, process),
            Step::ReadsSequence { process } => self.reads_sequence(&mut state, process),
            Step::IsRefused { process } => {
                state.left.refusals -= 1;
                state.processes[process].at = match std::mem::take(&mut state.processes[process].at) {
                    At::Granted(held, _) => At::GivingBack(held),
                    At::Confirmed(held) => At::Shelving(held),
                    _ => At::Idle,
                };
            }
            Step::Raises { process } => {
                state.left.raises -= 1;
                state.processes[process].at = At::Raising;
            }
            Step::Crashes { process } => {
                state.left.crashes -= 1;
                state.processes[process] = Process::default();
            }
            other => self.befell(&mut state, other),
        }
        self.remembers(before, &mut state);
        self.checks_promises(&mut state);
        state.broken = state.broken.filter(|broken| self.only.is_none_or(|only| only == *broken));
        state.forgets();
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
