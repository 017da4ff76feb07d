//! The cache window: every process runs the decisions of `idmill_shared_cache::cache`, over a cache that
//! loses items and restarts.
//!
//! The cache numbers each written item (cas). A restart resets these numbers, and breaks all connections. The
//! cache may lose the item at any time, which also models an expired stub (a refill's claim). A reply may be
//! lost, and a command whose sender gave up may still be executed later. The two commands of a clear run one
//! after the other, and other steps may come between them. A process may stop between any two steps, even
//! forever. The task that prepares the next range runs independently of its process. Another client may
//! reserve from the store directly; such ids need not grow.

mod ahead;
mod server;

use idmill::IdRange;
use idmill_shared_cache::cache;
use idmill_shared_cache::cache::{Command, Fence, Layout, LookReply, Next, Refill, Taken};

use crate::explore::{Fate, Protocol};
use crate::promises::{BOUNDED, GROWING, SERVED, UNIQUE};
use ahead::Ahead;
use server::{Item, Number, Reply, Sent, Server, small};

/// Number of ids that are reserved for an empty window: the process that placed the stub takes one, and the
/// first draw of the other ids prepares the next range.
const SIZE: u64 = 3;
const LAYOUT: Layout = Layout::new(1);
/// Ids per draw.
const COUNT: u64 = 1;

/// A wrong decision, or a world that violates an assumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A cas from a lost connection is used on the next connection.
    CasAfterReconnect,
    /// An install ignores the stub.
    UnconditionalInstall,
    /// A range is reserved on a miss, and stored if there is no item.
    ReserveBeforeWinning,
    /// A process that finds a stub reserves from the store directly.
    WaiterGoesToTheStore,
    /// A proxy sends installs a second time.
    Resent,
    /// There are two caches, and the processes switch over at different times.
    TwoServers,
    /// The window's end is extended from the value that the draw saw, without another read.
    ExtendsUnseen,
    /// The end is extended even for another window.
    ExtendsAnother,
    /// A range is joined to a window that ends before the range begins.
    JoinsAcrossAGap,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheWindow {
    pub(crate) processes: usize,
    pub(crate) calls: u8,
    pub(crate) evictions: u8,
    pub(crate) restarts: u8,
    /// Maximum number of lost replies, and of commands that are executed late or never.
    pub(crate) losses: u8,
    /// Maximum number of reserves from the store directly.
    pub(crate) strangers: u8,
    /// Maximum number of ranges that are prepared at the same time.
    pub(crate) ahead: usize,
    /// The last id; the first is 1.
    pub(crate) max: u64,
    pub(crate) bug: Bug,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Process {
    at: At,
    /// One more than the largest id that was returned anywhere before this call began.
    floor: u8,
    /// The cache that the process uses.
    server: u8,
}

/// The next action. The first number is the connection that the values were read on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum At {
    #[default]
    Idle,
    Adding,
    Looking,
    /// The window is used up, and another task prepares the next range.
    Awaiting(u8, u8),
    Clearing(u8, u8),
    /// The second half of a clear, which is lost with the connection.
    LookingAfter(u8),
    Reserving(u8, u8),
    Putting(u8, Sent, Ids),
    /// Only with a planted bug.
    ReservingEarly,
    PuttingIfAbsent(Number, Ids),
    GoingToTheStore,
}

type Ids = (u8, u8);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    servers: [Server; 2],
    /// The next id of the store.
    next: u8,
    processes: Vec<Process>,
    ahead: Vec<Ahead>,
    /// Commands that may be executed at any later time, with their server.
    flights: Vec<(usize, Sent)>,
    calls: u8,
    evictions: u8,
    restarts: u8,
    losses: u8,
    strangers: u8,
    issued: u32,
    /// Ids of strangers.
    taken: u32,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// A call begins. A draw that found a stub many times in a row reads before it adds.
    Begins {
        process: usize,
        looks: bool,
    },
    Sends {
        process: usize,
        what: Sent,
        fate: Fate,
    },
    Reserves {
        process: usize,
    },
    /// Stops waiting for the task that prepares the next range, or waits longer.
    Waits {
        process: usize,
        longer: bool,
    },
    PutsIfAbsent {
        process: usize,
    },
    ChangesServer {
        process: usize,
    },
    /// The task that prepares the next range takes a step.
    Prepares {
        ahead: usize,
        what: Option<Sent>,
        fate: Fate,
    },
    Stranger,
    Arrives {
        what: Sent,
        flight: usize,
    },
    Forgets,
    Restarts,
}

fn ids(range: IdRange) -> Ids {
    (small(range.start()), small(range.start() + range.len()))
}

fn bits((start, end): Ids) -> u32 {
    (start..end).fold(0, |bits, id| bits | 1 << id)
}

impl CacheWindow {
    /// Whether values that were read on a connection are still valid.
    fn knows(&self, state: &State, process: usize, connection: u8) -> bool {
        let server = state.servers[usize::from(state.processes[process].server)];
        connection == server.restarts || self.bug == Bug::CasAfterReconnect
    }

    fn sends(&self, state: &mut State, process: usize, what: Sent, fate: Fate) {
        let Process { at, server, .. } = state.processes[process];
        let s = usize::from(server);
        if let At::Clearing(on, _) | At::LookingAfter(on) | At::Putting(on, ..) = at
            && !self.knows(state, process, on)
        {
            // The connection is gone: nothing is sent, and the call starts over.
            state.processes[process].at = At::Adding;
            return;
        }
        if fate == Fate::OnItsWay {
            state.losses -= 1;
            state.flights.push((s, what));
            state.ends(process);
            return;
        }
        let reply = state.servers[s].does(what, self.bug);
        if self.bug == Bug::Resent && matches!(what, Sent::Put(..)) {
            state.flights.push((s, what));
        }
        if fate == Fate::ReplyLost {
            state.losses -= 1;
            state.ends(process);
            return;
        }
        self.hears(state, process, at, reply);
    }

    fn hears(&self, state: &mut State, process: usize, at: At, reply: Reply) {
        let connection = state.servers[usize::from(state.processes[process].server)].restarts;
        let next = match (reply, at) {
            (Reply::Added(added), _) => cache::after_add(LAYOUT, COUNT, added),
            (Reply::LookReply(seen), _) => cache::after_look(connection.into(), seen),
            (Reply::Done(true), At::Putting(_, _, own)) => {
                state.hand_out(process, own, self.max);
                return;
            }
            (Reply::Done(_), At::Clearing(on, _)) => {
                state.processes[process].at = At::LookingAfter(on);
                return;
            }
            // The range is abandoned.
            (Reply::Done(_), _) => Next::Draw,
        };
        state.processes[process].at = match next {
            Next::Take(taken) => return self.takes(state, process, &taken),
            Next::Send(Command::Look) if self.bug == Bug::ReserveBeforeWinning => At::ReservingEarly,
            Next::Send(Command::Look) => At::Looking,
            Next::Send(Command::Clear { cas }) => At::Clearing(connection, small(cas)),
            Next::Await { cas, .. } => At::Awaiting(connection, small(cas)),
            Next::Refill(fence) => {
                let cas = fence.cas_on(connection.into()).expect("of this connection");
                At::Reserving(connection, small(cas))
            }
            Next::Wait if self.bug == Bug::WaiterGoesToTheStore => At::GoingToTheStore,
            Next::Draw | Next::Wait => At::Adding,
            Next::Send(_) | Next::Foreign | Next::Unnumbered => unreachable!("not after an add or a look"),
        };
    }

    fn takes(&self, state: &mut State, process: usize, taken: &Taken) {
        if taken.low && state.ahead.len() < self.ahead {
            state.ahead.push(Ahead::new(taken, state.processes[process].server));
        }
        state.hand_out(process, ids(taken.range), self.max);
    }

    /// Reserves from the store, which limits the range to the ids it has.
    fn reserve(&self, state: &mut State, count: u64, size: u64) -> Option<IdRange> {
        let next = u64::from(state.next);
        let wanted = LAYOUT.refill_of((next <= self.max).then_some(next), self.max, count, size);
        let count = wanted.min((self.max + 1).saturating_sub(next));
        state.next += small(count);
        IdRange::new(next, count).filter(|range| !range.is_empty())
    }

    fn reserves(&self, state: &mut State, process: usize) {
        let at = state.processes[process].at;
        let Some(range) = self.reserve(state, COUNT, SIZE) else {
            // Exhausted: the process gives its stub back.
            if let At::Reserving(on, cas) = at
                && self.knows(state, process, on)
            {
                state.servers[usize::from(state.processes[process].server)]
                    .does(Sent::Release(cas), self.bug);
            }
            return state.ends(process);
        };
        state.processes[process].at = match at {
            At::Reserving(on, cas) => {
                let here = state.servers[usize::from(state.processes[process].server)].restarts;
                let fence = fence(on, cas);
                let here = if self.bug == Bug::CasAfterReconnect { on } else { here };
                match cache::refill(LAYOUT, fence, here.into(), range, COUNT) {
                    Some(Refill { command, own, .. }) => At::Putting(here, Sent::of(command), ids(own)),
                    None => At::Adding,
                }
            }
            At::ReservingEarly => {
                let Some(Refill { command: Command::Put { number: put, .. }, own, .. }) =
                    cache::refill(LAYOUT, fence(0, 1), 0, range, COUNT)
                else {
                    return state.ends(process);
                };
                At::PuttingIfAbsent(put, ids(own))
            }
            _ => {
                let mut range = range;
                return state.hand_out(process, ids(range.take_front(COUNT)), self.max);
            }
        };
    }

    fn puts_if_absent(&self, state: &mut State, process: usize) {
        let Process { at: At::PuttingIfAbsent(number, own), server, .. } = state.processes[process] else {
            unreachable!("offered only there")
        };
        let server = &mut state.servers[usize::from(server)];
        if server.item.is_some() {
            state.processes[process].at = At::Adding;
            return;
        }
        server.write(Item::Number(number));
        state.hand_out(process, own, self.max);
    }
}

fn fence(connection: u8, cas: u8) -> Fence {
    match cache::after_look(connection.into(), LookReply::Won { cas: cas.into() }) {
        Next::Refill(fence) => fence,
        next => unreachable!("{next:?}"),
    }
}

impl State {
    /// The call is over.
    fn ends(&mut self, process: usize) {
        let Process { server, .. } = self.processes[process];
        self.processes[process] = Process { server, ..Process::default() };
    }

    fn hand_out(&mut self, process: usize, own: Ids, max: u64) {
        let ids = bits(own);
        let worst = [
            ((self.issued | self.taken) & ids != 0, UNIQUE),
            (u64::from(own.1) > max + 1, BOUNDED),
            (own.0 < self.processes[process].floor, GROWING),
        ];
        if let Some((_, promise)) = worst.into_iter().find(|(broken, _)| *broken) {
            self.broken.get_or_insert(promise);
        }
        self.issued |= ids;
        self.ends(process);
    }

    fn floor(&self) -> u8 {
        u8::try_from(u32::BITS - self.issued.leading_zeros()).expect("32 at most")
    }
}

impl Protocol for CacheWindow {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let Self { calls, evictions, restarts, losses, strangers, .. } = *self;
        let processes = vec![Process::default(); self.processes];
        State { next: 1, processes, calls, evictions, restarts, losses, strangers, ..State::default() }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for process in 0..self.processes {
            self.steps_of(state, process, steps);
        }
        for ahead in 0..state.ahead.len() {
            Self::steps_ahead(state, ahead, steps);
        }
        if state.strangers > 0 && u64::from(state.next) <= self.max {
            steps.push(Step::Stranger);
        }
        for (flight, (_, what)) in state.flights.iter().enumerate() {
            steps.push(Step::Arrives { what: *what, flight });
        }
        if state.evictions > 0 && state.servers[0].item.is_some() {
            steps.push(Step::Forgets);
        }
        if state.restarts > 0 {
            steps.push(Step::Restarts);
        }
    }

    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::Begins { process, looks } => {
                next.calls -= 1;
                next.processes[process].at = if looks { At::Looking } else { At::Adding };
                next.processes[process].floor = state.floor();
            }
            Step::Sends { process, what, fate } => self.sends(&mut next, process, what, fate),
            Step::Reserves { process } => self.reserves(&mut next, process),
            Step::Waits { process, longer } => {
                let At::Awaiting(on, cas) = state.processes[process].at else {
                    unreachable!("offered only there")
                };
                next.processes[process].at = if longer { At::Looking } else { At::Clearing(on, cas) };
            }
            Step::PutsIfAbsent { process } => self.puts_if_absent(&mut next, process),
            Step::ChangesServer { process } => {
                next.processes[process].server = 1;
                next.processes[process].at = At::Idle;
            }
            Step::Prepares { ahead, what, fate } => self.prepares(&mut next, ahead, what, fate),
            Step::Stranger => {
                next.strangers -= 1;
                let id = (next.next, next.next + 1);
                if next.issued & bits(id) != 0 {
                    next.broken.get_or_insert(UNIQUE);
                }
                next.taken |= bits(id);
                next.next += 1;
            }
            Step::Arrives { flight, .. } => {
                let (server, what) = next.flights.remove(flight);
                next.servers[server].does(what, self.bug);
            }
            Step::Forgets => {
                next.evictions -= 1;
                next.servers[0].item = None;
            }
            Step::Restarts => {
                next.restarts -= 1;
                next.servers[0] = state.servers[0].restarted();
                // Commands in flight are lost with their connection, unless a proxy keeps them.
                next.flights.retain(|(_, what)| self.bug == Bug::Resent && matches!(what, Sent::Put(..)));
            }
        }
        next
    }

    fn canonical(&self, mut state: State) -> State {
        state.processes.sort_unstable();
        state.ahead.sort_unstable();
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken.or_else(|| (!self.is_served(state)).then_some(SERVED))
    }
}

impl CacheWindow {
    fn steps_of(&self, state: &State, process: usize, steps: &mut Vec<Step>) {
        let Process { at, server, .. } = state.processes[process];
        let what = match at {
            At::Idle => {
                if state.calls > 0 {
                    steps.extend([false, true].map(|looks| Step::Begins { process, looks }));
                }
                if self.bug == Bug::TwoServers && server == 0 {
                    steps.push(Step::ChangesServer { process });
                }
                return;
            }
            At::Reserving(..) | At::ReservingEarly | At::GoingToTheStore => {
                return steps.push(Step::Reserves { process });
            }
            At::PuttingIfAbsent(..) => return steps.push(Step::PutsIfAbsent { process }),
            At::Awaiting(..) => {
                return steps.extend([false, true].map(|longer| Step::Waits { process, longer }));
            }
            At::Adding => Sent::Add,
            At::Looking | At::LookingAfter(_) => Sent::Look,
            At::Clearing(_, cas) => Sent::Clear(cas),
            At::Putting(_, what, _) => what,
        };
        steps.push(Step::Sends { process, what, fate: Fate::Answered });
        if state.losses > 0 {
            let lost = [Fate::ReplyLost, Fate::OnItsWay];
            steps.extend(lost.map(|fate| Step::Sends { process, what, fate }));
        }
    }

    /// Whether a single process gets an id, or the error that the store has none.
    fn is_served(&self, state: &State) -> bool {
        let mut state =
            State { flights: Vec::new(), ahead: Vec::new(), calls: 1, losses: 0, ..state.clone() };
        let before = state.issued;
        state.processes.iter_mut().for_each(|process| process.at = At::Idle);
        state = self.after(&state, Step::Begins { process: 0, looks: false });
        let server = usize::from(state.processes[0].server);
        for _ in 0..16 {
            if state.processes[0].at == At::Idle {
                return state.issued != before || u64::from(state.next) > self.max;
            }
            // The process that placed the stub is gone, and the stub expires.
            if state.processes[0].at == At::Adding
                && let Some((Item::Stub, _)) = state.servers[server].item
            {
                state.servers[server].item = None;
            }
            let mut steps = Vec::new();
            self.steps_of(&state, 0, &mut steps);
            state = self.after(&state, steps[0]);
        }
        false
    }
}
