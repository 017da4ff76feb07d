//! The window on Redis: every process runs the decisions of `idmill_testing::fenced`, over two servers that
//! replace each other.
//!
//! One server is the master. The other server follows with some delay, and may be promoted at any time, in
//! its current state. The old master then stops, or keeps serving its clients (`split`), until it follows the
//! new master and copies the new data. A server may be restarted at any time from its last save. The key may
//! expire. A reply may be lost, and a command whose sender gave up may still be executed later. A process may
//! stop between any two steps, even forever.

mod ahead;
mod befalls;
mod served;

use idmill::IdRange;
use idmill_shared_cache::fenced::{prepared, refill};
use idmill_testing::fenced;
use idmill_testing::fenced::{Draw, Kept};

use crate::explore::{Fate, Protocol};
use crate::promises::{BOUNDED, GROWING, SERVED, UNIQUE};
use ahead::Ahead;

/// Number of ids that are reserved at a time: the claimant takes one, and the first draw of the other ids
/// prepares the next range.
const BLOCK: u64 = 3;
/// Ids per prepared range.
const NEXT: u64 = 2;
/// Ids per draw.
const COUNT: u64 = 1;

/// A wrong decision, such as a part of the fence that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// No fence: a range is used regardless of its run and history.
    NoFence,
    /// Fenced only by the run of the server.
    RunAlone,
    /// An install checks the token, and not the server.
    UnfencedInstall,
    /// A range is reserved before the window is claimed.
    ReserveBeforeClaiming,
    /// A prepared range is appended to any range.
    PreparesForAnother,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FencedWindow {
    pub(crate) processes: usize,
    pub(crate) calls: u8,
    pub(crate) failovers: u8,
    pub(crate) restarts: u8,
    pub(crate) expiries: u8,
    pub(crate) losses: u8,
    /// Whether an old master keeps serving until it follows the new one.
    pub(crate) split: bool,
    /// Whether the replica has to acknowledge a draw, as with `replicas=1`.
    pub(crate) waits: bool,
    /// Whether ids must grow across processes.
    pub(crate) growing: bool,
    pub(crate) max: u64,
    pub(crate) bug: Bug,
}

type Fence = (u8, u8);
type Ids = (u8, u8);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Process {
    at: At,
    /// One more than the largest id that was returned anywhere before this call began.
    floor: u8,
    server: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum At {
    #[default]
    Idle,
    Drawing,
    /// Reserves, with the token of the claim.
    Reserving(u8),
    Installing(u8, Ids),
    /// Only with a planted bug.
    ReservingEarly,
    DrawingWith(Ids),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Sent {
    /// A draw, with the token for a claim.
    Draw(u8),
    Install(u8, Ids),
    /// Token, range, and the number of ids that were left in the preceding range.
    Prepare(u8, Ids, u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    run: u8,
    history: u8,
    role: Role,
    kept: Option<Kept<Fence>>,
    saved: Option<Kept<Fence>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Master,
    Follows,
    /// A former master that has stopped.
    Deposed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    servers: [Server; 2],
    /// The next id of the store.
    next: u8,
    processes: Vec<Process>,
    ahead: Vec<Ahead>,
    flights: Vec<(u8, Sent)>,
    /// The last run, history and token that were used.
    names: (u8, u8, u8),
    calls: u8,
    failovers: u8,
    restarts: u8,
    expiries: u8,
    losses: u8,
    issued: u32,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Begins {
        process: usize,
        server: u8,
    },
    Sends {
        process: usize,
        what: Sent,
        fate: Fate,
    },
    Reserves {
        process: usize,
    },
    /// The task that prepares the next range takes a step.
    Prepares {
        ahead: usize,
        fate: Fate,
    },
    Arrives {
        server: u8,
        what: Sent,
        flight: usize,
    },
    /// The follower copies its master's state.
    Replicates {
        to: u8,
    },
    Promotes {
        server: u8,
    },
    /// A former master follows the other, and discards its own state.
    Follows {
        server: u8,
    },
    Saves {
        server: u8,
    },
    /// The server restarts from its last save.
    Restarts {
        server: u8,
    },
    Expires {
        server: u8,
    },
}

enum Reply {
    Drawn(Draw),
    Installed(bool),
    /// The server is not a master.
    Refused,
}

fn small(id: u64) -> u8 {
    u8::try_from(id).expect("models are small")
}

fn ids(range: IdRange) -> Ids {
    (small(range.start()), small(range.start() + range.len()))
}

fn range((start, end): Ids) -> IdRange {
    IdRange::new(start.into(), (end - start).into()).expect("small")
}

fn bits((start, end): Ids) -> u32 {
    (start..end).fold(0, |bits, id| bits | 1 << id)
}

fn other(server: u8) -> usize {
    usize::from(1 - server)
}

impl FencedWindow {
    fn fence(&self, server: &Server) -> Fence {
        match self.bug {
            Bug::NoFence => (0, 0),
            Bug::RunAlone => (server.run, 0),
            _ => (server.run, server.history),
        }
    }

    fn does(&self, server: &mut Server, what: Sent) -> Reply {
        if server.role != Role::Master {
            return Reply::Refused;
        }
        let here = self.fence(server);
        match what {
            Sent::Draw(token) => {
                Reply::Drawn(fenced::draw(&mut server.kept, &here, COUNT, u64::MAX, token.into()))
            }
            Sent::Install(token, block) => {
                let refill = refill(range(block), COUNT, u64::MAX);
                let claimed = match &server.kept {
                    Some(Kept::Claim { fence, .. }) if self.bug == Bug::UnfencedInstall => *fence,
                    _ => here,
                };
                let installed = fenced::install(&mut server.kept, &claimed, token.into(), &refill);
                if let Some(Kept::Range { fence, .. }) = &mut server.kept
                    && installed
                {
                    *fence = here;
                }
                Reply::Installed(installed)
            }
            Sent::Prepare(token, block, left) => {
                if let (Bug::PreparesForAnother, Some(Kept::Range { ahead, next: None, .. })) =
                    (self.bug, &mut server.kept)
                {
                    *ahead = Some(token.into());
                }
                let refill = prepared(range(block), left.into());
                Reply::Installed(fenced::install(&mut server.kept, &here, token.into(), &refill))
            }
        }
    }

    fn reserve(&self, state: &mut State, count: u64) -> Option<Ids> {
        let block = (state.next, small((u64::from(state.next) + count).min(self.max + 1)));
        state.next = block.1.max(block.0);
        (block.0 < block.1).then_some(block)
    }

    fn sends(&self, state: &mut State, process: usize, what: Sent, fate: Fate) {
        let Process { at, server, .. } = state.processes[process];
        if fate == Fate::OnItsWay {
            if let Sent::Draw(token) = what {
                state.names.2 = token;
            }
            state.losses -= 1;
            state.flights.push((server, what));
            return state.ends(process);
        }
        let reply = self.does(&mut state.servers[usize::from(server)], what);
        // A token is used up only by a claim that is made with it.
        if let (Reply::Drawn(Draw::Claimed | Draw::Ids { low: true, .. }), Sent::Draw(token)) = (&reply, what)
        {
            state.names.2 = token;
        }
        let known = state.servers[other(server)].role == Role::Follows;
        if self.waits && known {
            let kept = state.servers[usize::from(server)].kept.clone();
            state.servers[other(server)].kept = kept;
        }
        let claimed = matches!(reply, Reply::Drawn(Draw::Claimed | Draw::Busy));
        if self.waits && !known && !claimed {
            // No replica acknowledged, so the reply is not used.
            return state.ends(process);
        }
        if fate == Fate::ReplyLost {
            state.losses -= 1;
            return state.ends(process);
        }
        state.processes[process].at = match (reply, at) {
            (Reply::Drawn(Draw::Ids { range, left, low, .. }), _) => {
                if low && state.ahead.is_empty() {
                    let token = state.names.2;
                    state.ahead.push(Ahead { token, server, left: small(left), range: None });
                }
                return self.hand_out(state, process, ids(range));
            }
            (Reply::Installed(true), At::Installing(_, block)) => {
                let own = refill(range(block), COUNT, u64::MAX).own;
                return self.hand_out(state, process, ids(own));
            }
            (Reply::Drawn(Draw::Claimed), At::DrawingWith(block)) => At::Installing(state.names.2, block),
            (Reply::Drawn(Draw::Claimed), _) => At::Reserving(state.names.2),
            (Reply::Drawn(Draw::Busy), at) => at,
            (Reply::Installed(_), _) => At::Drawing,
            (Reply::Drawn(Draw::Above) | Reply::Refused, _) => return state.ends(process),
        };
    }

    fn reserves(&self, state: &mut State, process: usize) {
        let Some(block) = self.reserve(state, BLOCK) else {
            if let At::Reserving(token) = state.processes[process].at {
                let server = usize::from(state.processes[process].server);
                fenced::release(&mut state.servers[server].kept, token.into());
            }
            return state.ends(process);
        };
        state.processes[process].at = match state.processes[process].at {
            At::Reserving(token) => At::Installing(token, block),
            _ => At::DrawingWith(block),
        };
    }

    fn hand_out(&self, state: &mut State, process: usize, own: Ids) {
        let worst = [
            (state.issued & bits(own) != 0, UNIQUE),
            (u64::from(own.1) > self.max + 1, BOUNDED),
            (self.growing && own.0 < state.processes[process].floor, GROWING),
        ];
        if let Some((_, promise)) = worst.into_iter().find(|(broken, _)| *broken) {
            state.broken.get_or_insert(promise);
        }
        state.issued |= bits(own);
        state.ends(process);
    }
}

impl State {
    /// The call is over.
    fn ends(&mut self, process: usize) {
        self.processes[process] = Process::default();
    }
}

impl Protocol for FencedWindow {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let server = |run, role| Server { run, history: 1, role, kept: None, saved: None };
        State {
            servers: [server(1, Role::Master), server(2, Role::Follows)],
            next: 1,
            processes: vec![Process::default(); self.processes],
            ahead: Vec::new(),
            flights: Vec::new(),
            names: (2, 1, 0),
            calls: self.calls,
            failovers: self.failovers,
            restarts: self.restarts,
            expiries: self.expiries,
            losses: self.losses,
            issued: 0,
            broken: None,
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for process in 0..self.processes {
            Self::steps_of(state, process, steps);
        }
        for ahead in 0..state.ahead.len() {
            steps.push(Step::Prepares { ahead, fate: Fate::Answered });
            if state.losses > 0 && state.ahead[ahead].range.is_some() {
                steps.push(Step::Prepares { ahead, fate: Fate::OnItsWay });
            }
        }
        for (flight, (server, what)) in state.flights.iter().enumerate() {
            steps.push(Step::Arrives { server: *server, what: *what, flight });
        }
        for server in [0, 1] {
            let (here, there) = (&state.servers[usize::from(server)], &state.servers[other(server)]);
            let led = there.role == Role::Master;
            match here.role {
                Role::Follows if led && !self.waits && here.kept != there.kept => {
                    steps.push(Step::Replicates { to: server });
                }
                // Only the server that was promoted last is followed.
                Role::Master | Role::Deposed if led && there.history > here.history => {
                    steps.push(Step::Follows { server });
                }
                _ => {}
            }
            if here.role == Role::Follows && state.failovers > 0 {
                steps.push(Step::Promotes { server });
            }
            if state.restarts > 0 {
                steps.push(Step::Restarts { server });
                if here.saved != here.kept {
                    steps.push(Step::Saves { server });
                }
            }
            if state.expiries > 0 && here.kept.is_some() && here.role == Role::Master {
                steps.push(Step::Expires { server });
            }
        }
    }

    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::Begins { process, server } => {
                next.calls -= 1;
                let early = self.bug == Bug::ReserveBeforeClaiming;
                let at = if early { At::ReservingEarly } else { At::Drawing };
                next.processes[process] = Process { at, floor: state.floor(), server };
            }
            Step::Sends { process, what, fate } => self.sends(&mut next, process, what, fate),
            Step::Reserves { process } => self.reserves(&mut next, process),
            Step::Prepares { ahead, fate } => self.prepares(&mut next, ahead, fate),
            Step::Arrives { server, what, flight } => {
                next.flights.remove(flight);
                self.does(&mut next.servers[usize::from(server)], what);
            }
            Step::Replicates { to } => {
                next.servers[usize::from(to)].kept.clone_from(&state.servers[other(to)].kept);
            }
            Step::Promotes { server } => next.promotes(server, self.split),
            Step::Follows { server } => next.follows(server),
            Step::Saves { server } => {
                let server = &mut next.servers[usize::from(server)];
                server.saved.clone_from(&server.kept);
            }
            Step::Restarts { server } => next.restarts(server),
            Step::Expires { server } => {
                next.expiries -= 1;
                next.servers[usize::from(server)].kept = None;
            }
        }
        next
    }

    fn canonical(&self, mut state: State) -> State {
        state.processes.sort_unstable();
        state.flights.sort_unstable();
        state.ahead.sort_unstable();
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken.or_else(|| (!self.is_served(state)).then_some(SERVED))
    }
}

impl State {
    fn floor(&self) -> u8 {
        u8::try_from(u32::BITS - self.issued.leading_zeros()).expect("32 at most")
    }

    fn masters(&self) -> impl Iterator<Item = u8> {
        [0, 1].into_iter().filter(|server| self.servers[usize::from(*server)].role == Role::Master)
    }
}

impl FencedWindow {
    fn steps_of(state: &State, process: usize, steps: &mut Vec<Step>) {
        let what = match state.processes[process].at {
            At::Idle => {
                if state.calls > 0 {
                    steps.extend(state.masters().map(|server| Step::Begins { process, server }));
                }
                return;
            }
            At::Reserving(_) | At::ReservingEarly => return steps.push(Step::Reserves { process }),
            At::Drawing | At::DrawingWith(_) => Sent::Draw(state.names.2 + 1),
            At::Installing(token, block) => Sent::Install(token, block),
        };
        steps.push(Step::Sends { process, what, fate: Fate::Answered });
        if state.losses > 0 {
            let lost = [Fate::ReplyLost, Fate::OnItsWay];
            steps.extend(lost.map(|fate| Step::Sends { process, what, fate }));
        }
    }
}
