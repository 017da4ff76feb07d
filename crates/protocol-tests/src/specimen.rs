//! A published but broken scheme for a counter in a cache. The models must find its bug, as a test of the
//! models.
//!
//! Each call adds one to a count in the durable store, and then increments the counter in the cache. If the
//! cache has lost the counter, the call reads the durable count and stores it in the cache, unless another
//! call has stored one first. The durable count is at least as large as the counter was. A process that
//! pauses between reading the durable count and adding it to the cache adds an old count.

use crate::explore::Protocol;
use crate::promises::{GROWING, UNIQUE};

const PROCESSES: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Specimen {
    pub(crate) calls: u8,
    pub(crate) evictions: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    durable: u8,
    cache: Option<u8>,
    evictions: u8,
    calls: u8,
    processes: [Process; PROCESSES],
    /// Ids handed out, a bit each.
    issued: u64,
    twice: bool,
    shrunk: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    at: At,
    /// The largest id that was returned anywhere before this call began.
    floor: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    #[default]
    Idle,
    Increment,
    Read,
    Put(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// A call begins: it adds one to the durable count.
    Counts(usize),
    /// Asks the cache for the next number: an id, or a miss.
    Increments(usize),
    ReadsDurable(usize),
    PutsIfAbsent(usize),
    Eviction,
}

impl Protocol for Specimen {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State { calls: self.calls, evictions: self.evictions, ..State::default() }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (p, process) in state.processes.iter().enumerate() {
            match process.at {
                At::Idle if state.calls > 0 => steps.push(Step::Counts(p)),
                At::Idle => {}
                At::Increment => steps.push(Step::Increments(p)),
                At::Read => steps.push(Step::ReadsDurable(p)),
                At::Put(_) => steps.push(Step::PutsIfAbsent(p)),
            }
        }
        if state.evictions > 0 && state.cache.is_some() {
            steps.push(Step::Eviction);
        }
    }

    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::Counts(p) => {
                next.calls -= 1;
                next.durable += 1;
                next.processes[p] = Process { at: At::Increment, floor: largest(state.issued) };
            }
            Step::Increments(p) => next.increment(p),
            Step::ReadsDurable(p) => next.processes[p].at = At::Put(state.durable),
            Step::PutsIfAbsent(p) => {
                let At::Put(count) = state.processes[p].at else { unreachable!("offered only there") };
                next.cache.get_or_insert(count);
                next.processes[p].at = At::Increment;
            }
            Step::Eviction => {
                next.evictions -= 1;
                next.cache = None;
            }
        }
        next
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        match state {
            State { twice: true, .. } => Some(UNIQUE),
            State { shrunk: true, .. } => Some(GROWING),
            _ => None,
        }
    }
}

impl State {
    fn increment(&mut self, p: usize) {
        let Some(count) = &mut self.cache else {
            self.processes[p].at = At::Read;
            return;
        };
        *count += 1;
        self.twice |= self.issued & 1 << *count != 0;
        self.shrunk |= *count < self.processes[p].floor;
        self.issued |= 1 << *count;
        self.processes[p] = Process::default();
    }
}

fn largest(issued: u64) -> u8 {
    u8::try_from(issued.checked_ilog2().unwrap_or(0)).expect("63 at most")
}
