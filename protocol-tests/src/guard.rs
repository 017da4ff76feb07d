//! A store that goes back in time, and the witness that remembers what was claimed of it.
//!
//! Each process reserves from the store, reads the ledger, claims what it was granted, and uses it; gives the
//! rest back; or removes the sequence. Every call may be answered or lose its answer, and what is written may
//! arrive at any later time. The store is put back to any state that it was in, or emptied; processes crash
//! anywhere.

mod state;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use idmill::Range;
use idmill::guard::{Heal, Ledger, Refusal};
use idmill::store::Identity;

use self::state::{At, Granted, Process, Row, State, info};
use crate::explore::{Fate, Protocol};
use crate::promises::{SERVED, TRUSTED};

/// The last id: as many as a state has bits for.
const MAX: u64 = 12;

/// A decision that is made wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// What lies below the ledger's mark is claimed all the same.
    MarkAlone,
    /// A range is used although it is not known whether it was claimed.
    UsesTheUnknown,
    /// Another incarnation is taken for the same one.
    AnyIncarnation,
    /// An epoch that was before is taken for the same one.
    AnyEpoch,
    /// A process claims more than it was granted, and uses later grants that lie in that unasked.
    Lookahead,
    /// The store is raised to the end of the refused range alone.
    HealsToItsOwnEnd,
    /// A range is used, and claimed after that.
    ClaimsAfterUse,
    /// A claim too many is forgotten, and the floor stays.
    ForgetsTheLowest,
    /// A removal is announced once it is done.
    ToldLast,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) processes: usize,
    /// How many ranges are reserved at most.
    pub(crate) calls: u8,
    /// How often the store goes back.
    pub(crate) backs: u8,
    /// How often the witness goes back.
    pub(crate) witness_backs: u8,
    /// How many answers are lost or late.
    pub(crate) losses: u8,
    pub(crate) crashes: u8,
    pub(crate) resets: u8,
    pub(crate) removals: u8,
    /// How many ranges the ledger keeps apart.
    pub(crate) kept: usize,
    pub(crate) bug: Bug,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Reserves { process: usize, count: u64 },
    ReadsLedger { process: usize },
    Writes { process: usize, fate: Fate },
    LooksAtStore { process: usize },
    Uses { process: usize },
    GivesBack { process: usize },
    Removes { process: usize },
    Crashes { process: usize },
    Arrives { flight: usize },
    Resets,
    StoreGoesBack { to: usize },
    WitnessGoesBack { to: usize },
}

impl Guard {
    fn claim(&self, seen: Option<&Ledger>, granted: &Granted) -> Result<Ledger, Refusal> {
        let (mut identity, range) = (granted.row.identity, granted.range);
        let Some(known) = seen else { return Ledger::claim_within(self.kept, None, identity, range) };
        if self.bug == Bug::AnyIncarnation
            || self.bug == Bug::AnyEpoch && identity.incarnation == known.identity.incarnation
        {
            let fresh = Ledger::claim_within(self.kept, None, identity, range)?;
            if identity != known.identity {
                return Ok(with(fresh, |fresh| fresh.version = known.version + 1));
            }
            identity = known.identity;
        }
        let wanted = Ledger::claim_within(self.kept, seen, identity, range);
        match (self.bug, wanted) {
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

    fn reserves(state: &mut State, p: usize, count: u64) {
        if state.store.is_none() {
            state.incarnations += 1;
            let identity = Identity { incarnation: state.incarnations.into(), epoch: 0 };
            state.store = Some(Row { identity, next: 1 });
        }
        let Some(row) = &mut state.store else { unreachable!("created above") };
        let len = count.min((MAX + 1).saturating_sub(row.next));
        let Some(range) = Range::new(row.next, len).filter(|range| !range.is_empty()) else { return };
        row.next += len;
        state.processes[p].at = At::Granted(Granted { row: *row, range });
    }

    fn reads_ledger(&self, state: &mut State, p: usize) {
        let seen = state.ledger.clone();
        let process = &mut state.processes[p];
        process.at = match std::mem::take(&mut process.at) {
            At::Granted(granted)
                if self.bug == Bug::Lookahead && granted.range.end() <= process.ahead.into() =>
            {
                At::Holding(granted, state.used.len() - 1)
            }
            At::Granted(granted) => match self.claim(seen.as_ref(), &granted) {
                Ok(wanted) => At::Claiming(granted, seen, wanted),
                Err(Refusal::Claimed { top, twice }) => {
                    // Nothing was granted twice by a store that never went back. (A witness that did may have
                    // forgotten that ids were given back.)
                    let nothing_went_back =
                        (state.backs, state.witness_backs) == (self.backs, self.witness_backs);
                    if twice && nothing_went_back {
                        state.broken = state.broken.or(Some(TRUSTED));
                    }
                    At::Refused(granted, top)
                }
                // A person has to decide.
                Err(_) => {
                    // Unless nothing ever befell the store. (Where others claim while a sequence is removed,
                    // its successor is refused until the removal is announced again.)
                    if state.backs == self.backs && self.processes == 1 && self.losses == 0 {
                        state.broken = state.broken.or(Some(TRUSTED));
                    }
                    At::Idle
                }
            },
            At::Holding(granted, _) => {
                let released =
                    seen.as_ref().and_then(|seen| seen.release(granted.row.identity, granted.range));
                match (seen, released) {
                    (Some(seen), Some(wanted)) => At::Releasing(granted, seen, wanted),
                    _ => At::Idle,
                }
            }
            At::Announcing { done } => match seen.filter(|seen| !seen.removed) {
                Some(seen) => At::Announced { done, seen },
                None if done => At::Idle,
                None => At::Removing,
            },
            _ => unreachable!("offered in these alone"),
        };
    }

    fn writes(&self, state: &mut State, p: usize, fate: Fate) {
        let at = state.processes[p].at.clone();
        let Some((write, ..)) = at.write(0) else { unreachable!("offered where there is one") };
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
        // The life that the write began, if it did.
        let life = state.used.len() - 1;
        let (_, done, refused) = at.write(life).expect("as above");
        state.processes[p].at = match outcome {
            Some(true) => done,
            Some(false) => refused,
            None => match at {
                At::Claiming(granted, ..) if self.bug == Bug::UsesTheUnknown => At::Holding(granted, life),
                _ => At::Idle,
            },
        };
        state.remember(before);
    }

    fn looks_at_store(&self, state: &mut State, p: usize) {
        let At::Refused(granted, top) = state.processes[p].at else { unreachable!("offered there alone") };
        let top = if self.bug == Bug::HealsToItsOwnEnd { granted.range.end() } else { top };
        let healing = state.store.map(|row| Heal::of(&info(&row), granted.row.identity, top));
        state.processes[p].at = match healing {
            Some(Heal::Raise(next)) => At::Healing(granted, next),
            _ => At::Idle,
        };
    }

    /// Whether a process that is alone, and that nothing befalls, comes by an id, or hears why not.
    fn is_served(&self, state: &State) -> bool {
        let mut state = State { broken: None, flights: Vec::new(), ..state.clone() };
        let (p, mut reserves) = (0, 0);
        state.processes[p].at = At::Idle;
        // One that is refused, and one after the store was raised.
        while reserves <= 2 {
            match state.processes[p].at {
                At::Idle => {
                    if state.store.is_some_and(|row| row.next > MAX) {
                        return true;
                    }
                    reserves += 1;
                    Self::reserves(&mut state, p, 1);
                }
                At::Granted(_) => {
                    self.reads_ledger(&mut state, p);
                    if state.processes[p].at == At::Idle {
                        // Told that a person has to decide.
                        return true;
                    }
                }
                At::Refused(granted, top) => {
                    let healing = state.store.map(|row| Heal::of(&info(&row), granted.row.identity, top));
                    if healing == Some(Heal::Exhausted) {
                        return true;
                    }
                    self.looks_at_store(&mut state, p);
                }
                At::Holding(..) => return true,
                _ => self.writes(&mut state, p, Fate::Answered),
            }
        }
        false
    }
}

fn with(mut ledger: Ledger, change: impl FnOnce(&mut Ledger)) -> Ledger {
    change(&mut ledger);
    ledger
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
            incarnations: 0,
            calls: self.calls,
            backs: self.backs,
            witness_backs: self.witness_backs,
            losses: self.losses,
            crashes: self.crashes,
            resets: self.resets,
            removals: self.removals,
            broken: None,
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        let fates: &[Fate] = if state.losses > 0 {
            &[Fate::Answered, Fate::ReplyLost, Fate::OnItsWay]
        } else {
            &[Fate::Answered]
        };
        for (process, it) in state.processes.iter().enumerate() {
            match &it.at {
                At::Idle => {
                    if state.calls > 0 {
                        steps.extend([1, 2].map(|count| Step::Reserves { process, count }));
                    }
                    if state.removals > 0 && state.store.is_some() {
                        steps.push(Step::Removes { process });
                    }
                }
                At::Granted(_) | At::Announcing { .. } => {
                    steps.push(Step::ReadsLedger { process });
                    if self.bug == Bug::ClaimsAfterUse && matches!(it.at, At::Granted(_)) {
                        steps.push(Step::Uses { process });
                    }
                }
                At::Holding(..) => steps.extend([Step::Uses { process }, Step::GivesBack { process }]),
                At::Refused(..) => steps.push(Step::LooksAtStore { process }),
                _ => steps.extend(fates.iter().map(|fate| Step::Writes { process, fate: *fate })),
            }
            if state.crashes > 0 && it.at != At::Idle {
                steps.push(Step::Crashes { process });
            }
        }
        steps.extend((0..state.flights.len()).map(|flight| Step::Arrives { flight }));
        if state.resets > 0 && state.store.is_some() {
            steps.push(Step::Resets);
        }
        if state.backs > 0 {
            steps.extend((0..state.past.len()).map(|to| Step::StoreGoesBack { to }));
        }
        if state.witness_backs > 0 {
            steps.extend((0..state.ledgers.len()).map(|to| Step::WitnessGoesBack { to }));
        }
    }

    fn after(&self, state: &State, step: Step) -> State {
        let (mut state, before) = (state.clone(), state.store);
        match step {
            Step::Reserves { process, count } => {
                state.calls -= 1;
                Self::reserves(&mut state, process, count);
            }
            Step::ReadsLedger { process } | Step::GivesBack { process } => {
                self.reads_ledger(&mut state, process);
            }
            Step::Writes { process, fate } => {
                state.losses -= u8::from(fate != Fate::Answered);
                self.writes(&mut state, process, fate);
            }
            Step::LooksAtStore { process } => self.looks_at_store(&mut state, process),
            Step::Uses { process } => match std::mem::take(&mut state.processes[process].at) {
                At::Holding(granted, life) => state.uses(&granted, life),
                At::Granted(granted) => {
                    let life = state.used.len() - 1;
                    state.uses(&granted, life);
                }
                _ => unreachable!("offered in these alone"),
            },
            Step::Removes { process } => {
                state.removals -= 1;
                state.processes[process].at =
                    if self.bug == Bug::ToldLast { At::Removing } else { At::Announcing { done: false } };
            }
            Step::Crashes { process } => {
                state.crashes -= 1;
                state.processes[process] = Process { at: At::Idle, ahead: 0 };
            }
            Step::Arrives { flight } => {
                let write = state.flights.remove(flight);
                state.does(&write);
            }
            Step::Resets => {
                state.resets -= 1;
                if let Some(row) = &mut state.store {
                    (row.identity.epoch, row.next) = (row.identity.epoch + 1, 1);
                }
            }
            Step::StoreGoesBack { to } => {
                state.backs -= 1;
                state.store = state.past[to];
            }
            Step::WitnessGoesBack { to } => {
                state.witness_backs -= 1;
                state.ledger = state.ledgers[to].clone();
            }
        }
        state.remember(before);
        if self.witness_backs == 0 {
            state.ledgers.clear();
        }
        if state.broken.is_none() && !self.is_served(&state) {
            state.broken = Some(SERVED);
        }
        state
    }

    fn canonical(&self, mut state: State) -> State {
        // Any order, if it is the same for the same processes.
        state
            .processes
            .sort_by_cached_key(|process| BuildHasherDefault::<DefaultHasher>::default().hash_one(process));
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken
    }
}
