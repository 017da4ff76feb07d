//! The life of one datacenter's window: created by the first process that needs it, recalled, lost, and
//! restored from a backup.
//!
//! Unlike in `datacenter`, a process keeps the era it read from the global row and the window state it saw
//! (its floor), and checks the window against both. Each process reads the era before every draw. Except in
//! `RestoreUnderway`, a window is lost or restored while all processes are stopped: they restart without
//! memory, while their earlier writes may still arrive.

use idmill::store::{Bounds, Identity};
use idmill_shared_cache::datacenter::{
    Claim, ClaimStep, ClaimWrite, Draw, Era, Floor, GlobalRow, Install, Outcome, Prepare, Reset, Span, Take,
    Taken, Token, WindowRow, prepare,
};

use crate::explore::Protocol;
use crate::promises::{TRUSTED, UNIQUE};

const MAX: u64 = 3;
const SIZE: u64 = 2;

/// An event that happens to the rows, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Befalls {
    /// The sequence is set: the era changes, and all claims are cleared. Processes keep running.
    Recall,
    /// The window is gone.
    Loss,
    /// The window is restored from a backup, and then recalled.
    RestoreAndRecall,
    /// The window is restored from a backup without a recall: an operator's mistake.
    Restore,
    /// Like `Restore`, while the process that saw the window keeps running, with its floor.
    RestoreUnderway,
    /// The global row is restored from a backup, while the windows stay as they are.
    GlobalRestore,
}

/// A wrong decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A window is not checked against the floor while the era is the same.
    NoFloor,
    /// A claim is made from any global row, even if the window is ahead of it.
    ClaimUnchecked,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) processes: usize,
    pub(crate) in_flight: usize,
    pub(crate) befalls: Befalls,
    pub(crate) bug: Bug,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    at: At,
    era: Option<Era>,
    floor: Option<Floor>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    #[default]
    Idle,
    Reading,
    Mending(Option<WindowRow>),
    Claiming(Token),
    Writing(Write),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    Create(WindowRow),
    Reset(Reset),
    Take(Take),
    Claim(Token, ClaimWrite),
    Install(Install),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    window: Option<WindowRow>,
    global: GlobalRow,
    backup: Option<WindowRow>,
    global_backup: Option<GlobalRow>,
    befell: bool,
    processes: Vec<Process>,
    flights: Vec<Write>,
    issued: u32,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    HearsEra { process: usize },
    ReadsWindow { process: usize },
    ReadsGlobal { process: usize },
    Writes { process: usize, fate: Fate },
    Arrives { flight: usize },
    BacksUp,
    Befalls(Befalls),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    OnItsWay,
}

impl Life {
    fn does(state: &mut State, write: Write) -> bool {
        let window = &mut state.window;
        match write {
            Write::Create(row) => {
                let done = window.is_none();
                window.get_or_insert(row);
                done
            }
            Write::Reset(reset) => Self::on(window, |row| reset.holds(row), |row| reset.apply(row)),
            Write::Take(take) => Self::on(window, |row| take.holds(row), |row| take.apply(row)),
            Write::Install(install) => Self::on(window, |row| install.holds(row), |row| install.apply(row)),
            Write::Claim(_, claim) => {
                let done = claim.holds(&state.global);
                if done {
                    claim.apply(&mut state.global);
                }
                done
            }
        }
    }

    fn on(
        window: &mut Option<WindowRow>,
        holds: impl Fn(&WindowRow) -> bool,
        apply: impl Fn(&mut WindowRow),
    ) -> bool {
        let row = window.as_mut().filter(|row| holds(row));
        let done = row.is_some();
        row.into_iter().for_each(apply);
        done
    }

    fn reads_window(&self, state: &mut State, p: usize) {
        let Process { era, floor, .. } = state.processes[p];
        let window = state.window;
        if self.bug != Bug::NoFloor && floor.is_some_and(|floor| !floor.allows(window.as_ref())) {
            return state.refuses(p);
        }
        if let Some(row) = &window {
            state.processes[p].raise(Floor::of_window(row));
        }
        let served = window.filter(|row| era.is_none_or(|era| era == row.era));
        state.processes[p].at = match served.map(|row| row.draw(1, u64::MAX)) {
            None => At::Mending(window),
            Some(Draw::Take(take)) => At::Writing(Write::Take(take)),
            Some(Draw::Empty(token)) => At::Claiming(token),
            Some(Draw::AboveCeiling) => unreachable!("there is no ceiling"),
        };
    }

    fn reads_global(&self, state: &mut State, p: usize) {
        let global = state.global;
        let Process { at, floor, .. } = state.processes[p];
        state.processes[p].era = Some(global.era);
        state.processes[p].at = match at {
            At::Mending(window) => match prepare(window.as_ref(), &global, floor.as_ref()) {
                Prepare::Ready => At::Reading,
                Prepare::Create(row) => At::Writing(Write::Create(row)),
                Prepare::Reset(reset) => At::Writing(Write::Reset(reset)),
                Prepare::Again(floor) => {
                    state.processes[p].raise(floor);
                    At::Reading
                }
                Prepare::Corrupt(_) => return state.refuses(p),
            },
            At::Claiming(token) => match self.claim(&global, &token) {
                ClaimStep::Recorded(span) => {
                    At::Writing(Write::Install(Install::new(&token, span, global.bounds)))
                }
                ClaimStep::Send(write) => At::Writing(Write::Claim(token, write)),
                ClaimStep::Stale => {
                    if let Some(floor) = Floor::of_global(&global) {
                        state.processes[p].raise(floor);
                    }
                    At::Idle
                }
                ClaimStep::Nothing => At::Idle,
                ClaimStep::Corrupt(_) => return state.refuses(p),
            },
            _ => unreachable!("the action is offered only in the states above"),
        };
    }

    fn claim(&self, global: &GlobalRow, token: &Token) -> ClaimStep {
        let step = global.claim(token, SIZE, u64::MAX);
        if self.bug != Bug::ClaimUnchecked || !matches!(step, ClaimStep::Corrupt(_)) {
            return step;
        }
        let span =
            Span { start: global.next, end: (global.next + u128::from(SIZE)).min(u128::from(MAX) + 1) };
        let claim = Claim { token: token.generation, span };
        ClaimStep::Send(ClaimWrite { era: global.era, seen: global.next, max: MAX, claim })
    }

    fn writes(state: &mut State, p: usize, fate: Fate) {
        let At::Writing(write) = state.processes[p].at else { unreachable!("offered only there") };
        let outcome = if fate == Fate::OnItsWay {
            state.flights.push(write);
            Outcome::Unknown
        } else if Self::does(state, write) {
            Outcome::Applied
        } else {
            Outcome::Refused
        };
        state.processes[p].at = match write {
            Write::Create(_) | Write::Reset(_) => At::Reading,
            Write::Install(_) => At::Idle,
            Write::Claim(token, claim) => match claim.after(outcome) {
                Some(span) => At::Writing(Write::Install(Install::new(&token, span, state.global.bounds))),
                None => At::Claiming(token),
            },
            Write::Take(take) => {
                if let Taken::Ids(ids) = take.after(outcome) {
                    state.hand_out(ids);
                    state.processes[p].took(&take);
                }
                At::Idle
            }
        };
    }

    fn befalls(&self, state: &mut State) {
        state.befell = true;
        if matches!(self.befalls, Befalls::Recall | Befalls::RestoreAndRecall) {
            state.global.era.recalls += 1;
            state.global.claim = None;
        }
        match self.befalls {
            Befalls::Recall => return,
            Befalls::GlobalRestore => state.global = state.global_backup.unwrap_or(state.global),
            Befalls::Loss => state.window = None,
            Befalls::RestoreAndRecall | Befalls::Restore | Befalls::RestoreUnderway => {
                state.window = state.backup;
            }
        }
        if self.befalls != Befalls::RestoreUnderway {
            state.processes.fill(Process::default());
        }
    }
}

impl Process {
    /// Raises the floor to the new start of the window, since the ids before it were taken. The Cassandra
    /// store raises its floor in the same way after a take.
    fn took(&mut self, take: &Take) {
        let generation = self.floor.filter(|floor| floor.era == take.era).map_or(0, |floor| floor.generation);
        self.raise(Floor { era: take.era, generation, next: take.current.start });
    }

    fn raise(&mut self, floor: Floor) {
        self.floor = Some(self.floor.map_or(floor, |known| known.raised(floor)));
    }
}

impl State {
    /// The call is rejected, which breaks a promise if no backup exists that could have been restored.
    fn refuses(&mut self, p: usize) {
        self.processes[p].at = At::Idle;
        self.processes[p].era = None;
        if self.backup.is_none() {
            self.broken.get_or_insert(TRUSTED);
        }
    }

    fn hand_out(&mut self, ids: Span) {
        let ids = (ids.start..ids.end).fold(0, |bits, id| bits | 1 << id);
        if self.issued & ids != 0 {
            self.broken = Some(UNIQUE);
        }
        self.issued |= ids;
    }
}

impl Protocol for Life {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let era = Era { identity: Identity { incarnation: 1, epoch: 0 }, recalls: 0 };
        let claim: Option<Claim> = None;
        State {
            window: None,
            global: GlobalRow { era, bounds: Bounds::new(0, MAX).expect("bounds"), next: 0, claim },
            backup: None,
            global_backup: None,
            befell: false,
            processes: vec![Process::default(); self.processes],
            flights: Vec::new(),
            issued: 0,
            broken: None,
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (process, at) in state.processes.iter().map(|process| process.at).enumerate() {
            match at {
                At::Idle => steps.push(Step::HearsEra { process }),
                At::Reading => steps.push(Step::ReadsWindow { process }),
                At::Mending(_) | At::Claiming(_) => steps.push(Step::ReadsGlobal { process }),
                At::Writing(_) => {
                    steps.push(Step::Writes { process, fate: Fate::Answered });
                    if state.flights.len() < self.in_flight {
                        steps.push(Step::Writes { process, fate: Fate::OnItsWay });
                    }
                }
            }
        }
        steps.extend((0..state.flights.len()).map(|flight| Step::Arrives { flight }));
        let backed_up = self.befalls == Befalls::Recall || state.backup.is_some();
        if !backed_up && state.window.is_some() {
            steps.push(Step::BacksUp);
        }
        if backed_up && !state.befell {
            steps.push(Step::Befalls(self.befalls));
        }
    }

    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::HearsEra { process } => {
                next.processes[process].era = Some(state.global.era);
                next.processes[process].at = At::Reading;
            }
            Step::ReadsWindow { process } => self.reads_window(&mut next, process),
            Step::ReadsGlobal { process } => self.reads_global(&mut next, process),
            Step::Writes { process, fate } => Self::writes(&mut next, process, fate),
            Step::Arrives { flight } => {
                let write = next.flights.remove(flight);
                Self::does(&mut next, write);
            }
            Step::BacksUp => {
                next.backup = state.window;
                next.global_backup = Some(state.global);
            }
            Step::Befalls(_) => self.befalls(&mut next),
        }
        next
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken
    }
}
