//! Datacenter windows: every process runs the decisions of `idmill_shared_cache::datacenter`, over rows
//! that are registers with linearizable conditional writes.
//!
//! The global row and the window of each datacenter are separate registers, like partitions that are only
//! ever accessed at one level. A process may stop between any two steps, for any time or forever. An idle
//! process keeps nothing in memory, so it also models a restarted one. A conditional write is answered, or
//! applied without an answer, or stays in flight: then it is applied at any later time, or never. A cut link
//! is modelled by processes that stop where they need the global row.

mod steps;

use idmill::store::{Bounds, Identity};
use idmill_shared_cache::datacenter::{ClaimWrite, Draw, Era, GlobalRow, Span, Take, Token, WindowRow};

use crate::explore::{Fate, Protocol};
use crate::promises::{ACCOUNTED, BOUNDED, DRAINED, GROWING, UNIQUE};

pub(crate) const DATACENTERS: usize = 2;
/// Ids are bits of a `u32`.
type Ids = u32;
const ERA: Era = Era { identity: Identity { incarnation: 1, epoch: 0 }, recalls: 0 };

/// A wrong decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A take with an unknown outcome is treated as applied.
    UnknownTakenAsSuccess,
    /// A claim with an unknown outcome is sent again, whatever is recorded.
    BlindRetry,
    /// Claims are not recorded at all.
    NaiveRefill,
    /// An install does not check the generation.
    InstallWithoutGeneration,
    /// An install checks that nothing is preloaded, instead of the generation.
    InstallIfNothingPreloaded,
    /// A claim checks only the datacenter's token, not the counter.
    ClaimByTokenOnly,
    /// The end of the sequence is tested before the recorded claim.
    EndTestedFirst,
    /// A claim goes past the end.
    NoClamp,
    /// A take does not check `next`.
    TakeWithoutCondition,
}

/// The size of the world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    /// Number of processes in each datacenter.
    pub(crate) processes: usize,
    /// The last id; the first is 0.
    pub(crate) max: u64,
    /// Ids per claim.
    pub(crate) size: u64,
    /// Ids per take.
    pub(crate) count: u64,
    /// A refill begins when this number of ids is left.
    pub(crate) threshold: u64,
    /// Maximum number of writes in flight.
    pub(crate) in_flight: usize,
    pub(crate) bug: Bug,
}

impl Windows {
    pub(crate) const fn of(processes: usize, max: u64, in_flight: usize) -> Self {
        Self { processes, max, size: 2, count: 1, threshold: 1, in_flight, bug: Bug::None }
    }

    pub(crate) const fn with(self, bug: Bug) -> Self {
        Self { bug, ..self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Process {
    #[default]
    Idle,
    Taking(Taking),
    /// The process is about to read the global row.
    Claiming {
        token: Refilling,
        blindly: bool,
    },
    Sending {
        token: Refilling,
        write: Claiming,
    },
    Installing(Installing),
}

// The types of the code under test are wide, contain an era each, and are not ordered. The types below store
// only the fields that differ between states.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Taking {
    seen: u8,
    current: (u8, u8),
    ids: (u8, u8),
    switched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Refilling {
    generation: u8,
    reached: u8,
    empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Claiming {
    seen: u8,
    claim: Claim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Claim {
    token: u8,
    ids: (u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Installing {
    generation: u8,
    ids: (u8, u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    generation: u8,
    current: (u8, u8),
    preloaded: Option<(u8, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Flight {
    Take(usize, Taking),
    Claim(usize, Claiming),
    Install(usize, Installing),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    next: u8,
    claims: [Option<Claim>; DATACENTERS],
    windows: [Window; DATACENTERS],
    processes: [Vec<Process>; DATACENTERS],
    flights: Vec<Flight>,
    /// Ids handed out, by datacenter.
    issued: [Ids; DATACENTERS],
    /// Ids that were taken, but never handed out.
    gaps: Ids,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Reads the window, to take ids.
    Begins {
        datacenter: usize,
        process: usize,
    },
    /// Reads the window, to refill it early.
    LooksAhead {
        datacenter: usize,
        process: usize,
    },
    ReadsGlobal {
        datacenter: usize,
        process: usize,
    },
    Writes {
        datacenter: usize,
        process: usize,
        fate: Fate,
    },
    Stops {
        datacenter: usize,
        process: usize,
    },
    /// A write in flight is applied, if its condition holds.
    Arrives {
        flight: usize,
    },
    /// A write in flight is never applied.
    Vanishes {
        flight: usize,
    },
}

fn span((start, end): (u8, u8)) -> Span {
    Span { start: start.into(), end: end.into() }
}

fn small(id: u128) -> u8 {
    u8::try_from(id).expect("models are small")
}

fn pair(span: Span) -> (u8, u8) {
    (small(span.start), small(span.end))
}

fn bits((start, end): (u8, u8)) -> Ids {
    (start..end).fold(0, |bits, id| bits | 1 << id)
}

impl Windows {
    fn bounds(&self) -> Bounds {
        Bounds::new(0, self.max).expect("bounds")
    }

    fn window(&self, state: &State, datacenter: usize) -> WindowRow {
        let Window { generation, current, preloaded } = state.windows[datacenter];
        WindowRow {
            era: ERA,
            bounds: self.bounds(),
            generation: generation.into(),
            current: span(current),
            preloaded: preloaded.map(span),
        }
    }

    fn put_window(state: &mut State, datacenter: usize, row: &WindowRow) {
        let generation = small(row.generation.into());
        let (current, preloaded) = (pair(row.current), row.preloaded.map(pair));
        state.windows[datacenter] = Window { generation, current, preloaded };
    }

    fn global(&self, state: &State, datacenter: usize) -> GlobalRow {
        let claim = state.claims[datacenter].map(Claim::wide);
        GlobalRow { era: ERA, bounds: self.bounds(), next: state.next.into(), claim }
    }
}

impl Claim {
    fn wide(self) -> idmill_shared_cache::datacenter::Claim {
        idmill_shared_cache::datacenter::Claim { token: self.token.into(), span: span(self.ids) }
    }
}

impl Taking {
    fn of(take: &Take) -> Self {
        let (current, ids) = (pair(take.current), pair(take.ids));
        Self { seen: small(take.seen), current, ids, switched: take.switched }
    }

    fn wide(self) -> Take {
        let (current, ids) = (span(self.current), span(self.ids));
        Take { era: ERA, seen: self.seen.into(), current, switched: self.switched, ids }
    }
}

impl Refilling {
    fn of(token: &Token) -> Self {
        let (generation, reached) = (small(token.generation.into()), small(token.reached));
        Self { generation, reached, empty: token.empty }
    }

    fn wide(self) -> Token {
        let Self { generation, reached, empty } = self;
        Token { era: ERA, generation: generation.into(), reached: reached.into(), empty }
    }
}

impl Claiming {
    fn of(write: &ClaimWrite) -> Self {
        let claim = Claim { token: small(write.claim.token.into()), ids: pair(write.claim.span) };
        Self { seen: small(write.seen), claim }
    }
}

impl Window {
    fn ids(self) -> Ids {
        bits(self.current) | self.preloaded.map_or(0, bits)
    }
}

impl State {
    /// Ids that are claimed for a datacenter and not installed.
    fn owed(&self, datacenter: usize) -> Ids {
        let installed = self.windows[datacenter].generation;
        self.claims[datacenter].filter(|claim| claim.token > installed).map_or(0, |claim| bits(claim.ids))
    }

    fn hand_out(&mut self, datacenter: usize, ids: Ids, max: u64) {
        let before = self.issued[0] | self.issued[1];
        let worst = [
            (before & ids != 0, UNIQUE),
            (u64::from(ids.ilog2()) > max, BOUNDED),
            // Ids increase only within a datacenter, because each has its own window.
            (self.issued[datacenter] > ids, GROWING),
        ];
        if let Some((_, promise)) = worst.into_iter().find(|(broken, _)| *broken) {
            self.broken.get_or_insert(promise);
        }
        self.issued[datacenter] |= ids;
    }

    /// The ids of a take with an unknown outcome are a gap once they are not in the datacenter's window.
    fn gap_if_gone(&mut self, datacenter: usize, taking: Taking) {
        let ids = bits(taking.ids) & !self.windows[datacenter].ids();
        self.gaps |= ids & !(self.issued[0] | self.issued[1]);
    }
}

impl Protocol for Windows {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let processes = std::array::from_fn(|_| vec![Process::Idle; self.processes]);
        State { processes, ..State::default() }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for datacenter in 0..DATACENTERS {
            for process in 0..self.processes {
                self.steps_of(state, datacenter, process, steps);
            }
        }
        for flight in 0..state.flights.len() {
            steps.extend([Step::Arrives { flight }, Step::Vanishes { flight }]);
        }
    }

    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::Begins { datacenter, process } => {
                let drawn = self.window(state, datacenter).draw(self.count, u64::MAX);
                next.processes[datacenter][process] = match drawn {
                    Draw::Take(take) => Process::Taking(Taking::of(&take)),
                    Draw::Empty(token) => Process::Claiming { token: Refilling::of(&token), blindly: false },
                    Draw::AboveCeiling => unreachable!("there is no ceiling"),
                };
            }
            Step::LooksAhead { datacenter, process } => {
                let token = self.window(state, datacenter).low(self.threshold).expect("offered only then");
                next.processes[datacenter][process] =
                    Process::Claiming { token: Refilling::of(&token), blindly: false };
            }
            Step::ReadsGlobal { datacenter, process } => self.reads_global(&mut next, datacenter, process),
            Step::Writes { datacenter, process, fate } => self.writes(&mut next, datacenter, process, fate),
            Step::Stops { datacenter, process } => next.processes[datacenter][process] = Process::Idle,
            Step::Vanishes { flight } => drop(next.flights.remove(flight)),
            Step::Arrives { flight } => match next.flights.remove(flight) {
                Flight::Take(datacenter, taking) => {
                    if self.take(&mut next, datacenter, taking) {
                        next.gap_if_gone(datacenter, taking);
                    }
                }
                Flight::Claim(datacenter, write) => _ = self.claim(&mut next, datacenter, write),
                Flight::Install(datacenter, installing) => {
                    _ = self.install(&mut next, datacenter, installing);
                }
            },
        }
        next
    }

    fn canonical(&self, mut state: State) -> State {
        state.processes.iter_mut().for_each(|processes| processes.sort_unstable());
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.broken.is_some() {
            return state.broken;
        }
        if !self.is_accounted_for(state) {
            return Some(ACCOUNTED);
        }
        (!self.can_be_drained(state)).then_some(DRAINED)
    }
}

impl Windows {
    fn steps_of(&self, state: &State, datacenter: usize, process: usize, steps: &mut Vec<Step>) {
        match state.processes[datacenter][process] {
            Process::Idle => {
                steps.push(Step::Begins { datacenter, process });
                // If the window is empty, `Begins` does the same.
                let low = self.window(state, datacenter).low(self.threshold);
                if low.is_some_and(|token| !token.empty) {
                    steps.push(Step::LooksAhead { datacenter, process });
                }
                return;
            }
            Process::Claiming { .. } => steps.push(Step::ReadsGlobal { datacenter, process }),
            Process::Taking(_) | Process::Sending { .. } | Process::Installing(_) => {
                let fates = [Fate::Answered, Fate::ReplyLost, Fate::OnItsWay];
                let room = state.flights.len() < self.in_flight;
                let possible = fates.into_iter().filter(|fate| *fate != Fate::OnItsWay || room);
                steps.extend(possible.map(|fate| Step::Writes { datacenter, process, fate }));
            }
        }
        steps.push(Step::Stops { datacenter, process });
    }

    fn all(&self) -> Ids {
        bits((0, small(u128::from(self.max) + 1)))
    }

    fn is_accounted_for(&self, state: &State) -> bool {
        let mut seen: Ids = 0;
        let mut apart = true;
        let mut count = |ids: Ids| {
            apart &= seen & ids == 0;
            seen |= ids;
        };
        count(bits((state.next, small(u128::from(self.max) + 1))));
        for datacenter in 0..DATACENTERS {
            count(state.issued[datacenter]);
            count(state.owed(datacenter));
            count(bits(state.windows[datacenter].current));
            count(state.windows[datacenter].preloaded.map_or(0, bits));
        }
        count(state.gaps);
        apart && seen == self.all()
    }

    /// Whether one fault-free process per datacenter can take all that is left.
    fn can_be_drained(&self, state: &State) -> bool {
        let mut state = State { flights: Vec::new(), ..state.clone() };
        for datacenter in 0..DATACENTERS {
            let enough = 16 * (self.max + 2);
            let mut process = Process::Idle;
            let done = (0..enough).any(|_| {
                state.processes[datacenter][0] = process;
                let at_end =
                    matches!(process, Process::Claiming { .. }) && self.is_exhausted(&state, datacenter);
                let step = match process {
                    Process::Idle => Step::Begins { datacenter, process: 0 },
                    Process::Claiming { .. } => Step::ReadsGlobal { datacenter, process: 0 },
                    _ => Step::Writes { datacenter, process: 0, fate: Fate::Answered },
                };
                state = self.after(&state, step);
                process = state.processes[datacenter][0];
                at_end && process == Process::Idle
            });
            if !done || state.broken.is_some() {
                return false;
            }
        }
        state.issued[0] | state.issued[1] | state.gaps == self.all()
    }
}
