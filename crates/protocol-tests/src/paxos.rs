//! Conditional writes as Cassandra does them, message by message. The model shows why SERIAL and LOCAL_SERIAL
//! must not be mixed on one partition.
//!
//! There are three replicas in each of two datacenters, and one counter. A take reads the counter and adds
//! one with a conditional write, whose rounds are Paxos: prepare, propose, commit. SERIAL needs four of all
//! six replicas, LOCAL_SERIAL two of the local three. No message is lost, but each may be late, even after
//! its call has returned. If a round finds a proposal that is accepted but perhaps not committed, the round
//! first finishes that proposal, under the round's own ballot.
//!
//! A coordinator continues as soon as it has enough answers. If its proposal is rejected somewhere, it may
//! wait forever, which models its timeout.

use crate::explore::Protocol;
use crate::promises::UNIQUE;

const REPLICAS: usize = 6;
const LOCAL: usize = 3;

/// The replicas that a call contacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Level {
    Serial,
    LocalSerial,
}

/// The replicas that a call waits for at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Commit {
    LocalQuorum,
    Quorum,
    EachQuorum,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    /// Adds one, unless the counter is at 0, which means empty. The id is the previous value.
    Take(Level),
    /// Sets an empty counter to 3.
    Refill(Level),
    /// Only reads. If the call finds an unfinished proposal, the call commits the proposal and returns.
    Read(Level),
}

impl Call {
    fn level(self) -> Level {
        match self {
            Self::Take(level) | Self::Refill(level) | Self::Read(level) => level,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Paxos {
    pub(crate) calls: Vec<Call>,
    pub(crate) commit: Commit,
    /// A call begins only after the previous one has returned.
    pub(crate) one_by_one: bool,
    /// The counter at the beginning.
    pub(crate) next: u8,
    /// Number of ballots, hence of rounds.
    pub(crate) ballots: u8,
    /// Messages that have not arrived when a call returns never arrive. The option reduces the orders to
    /// explore, and is only for finding bugs.
    pub(crate) late_is_never: bool,
}

/// The counter as written under a ballot. Ballot 0 stands for no write, or for the initial value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Write {
    ballot: u8,
    next: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Replica {
    promised: u8,
    accepted: Write,
    committed: Write,
    /// Messages on their way to this replica, a bit each.
    coming: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Prepare,
    Propose,
    Commit,
}

const MESSAGES: [Message; 3] = [Message::Prepare, Message::Propose, Message::Commit];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Waiting,
    Preparing,
    Proposing,
    Committing,
    Returned(Option<u8>),
}

/// A call in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    phase: Phase,
    ballot: u8,
    /// Number of answers from each datacenter.
    heard: [u8; 2],
    /// The latest values in the answers to the prepare.
    accepted: Write,
    committed: Write,
    /// The counter as this round read it.
    read: u8,
    /// Whether the round proposes the unfinished write of another call.
    replays: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    replicas: [Replica; REPLICAS],
    /// The value that each ballot proposes.
    proposed: Vec<u8>,
    rounds: Vec<Round>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Begins {
        call: usize,
    },
    /// The datacenter is 0 or 1. Replicas of one datacenter in the same state count as one.
    Arrives {
        what: Message,
        ballot: u8,
        datacenter: usize,
        at: Replica,
    },
}

impl Protocol for Paxos {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let there = Write { ballot: 0, next: self.next };
        State {
            replicas: [Replica { committed: there, ..Replica::default() }; REPLICAS],
            proposed: vec![0],
            rounds: vec![Round::default(); self.calls.len()],
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (call, round) in state.rounds.iter().enumerate() {
            let after = |other: &Round| matches!(other.phase, Phase::Returned(_));
            let may = !self.one_by_one || state.rounds[..call].iter().all(after);
            if round.phase == Phase::Waiting && may && state.ballot() < self.ballots {
                steps.push(Step::Begins { call });
            }
        }
        for (r, at) in state.replicas.iter().enumerate() {
            if r % LOCAL > 0 && state.replicas[r - 1] == *at {
                continue;
            }
            for ballot in 1..=state.ballot() {
                let coming = MESSAGES.into_iter().filter(|what| at.coming & bit(ballot, *what) != 0);
                let arrives = |what| Step::Arrives { what, ballot, datacenter: r / LOCAL, at: *at };
                steps.extend(coming.map(arrives));
            }
        }
    }

    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::Begins { call } => self.prepare(&mut next, call),
            Step::Arrives { what, ballot, datacenter, at } => {
                let mut here = next.replicas.iter().skip(datacenter * LOCAL);
                let r = datacenter * LOCAL + here.position(|replica| *replica == at).expect("offered there");
                self.arrives(&mut next, r, what, ballot);
            }
        }
        let (local, remote) = next.replicas.split_at_mut(LOCAL);
        local.sort_unstable();
        remote.sort_unstable();
        next
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let ids = state.rounds.iter().filter_map(|round| match round.phase {
            Phase::Returned(id) => id,
            _ => None,
        });
        let mut seen = 0_u64;
        for id in ids {
            if seen & 1 << id != 0 {
                return Some(UNIQUE);
            }
            seen |= 1 << id;
        }
        None
    }
}

fn bit(ballot: u8, what: Message) -> u32 {
    1 << (u32::from(ballot) * 3 + what as u32)
}

impl State {
    fn ballot(&self) -> u8 {
        u8::try_from(self.proposed.len() - 1).expect("few")
    }

    fn send(&mut self, what: Message, ballot: u8, replicas: usize) {
        self.replicas[..replicas].iter_mut().for_each(|replica| replica.coming |= bit(ballot, what));
    }
}

impl Paxos {
    /// Starts a new round with the next ballot. If no ballots are left, the call ends without a result.
    fn prepare(&self, state: &mut State, call: usize) {
        if state.ballot() == self.ballots {
            state.rounds[call] = Round { phase: Phase::Returned(None), ..Round::default() };
            return;
        }
        state.proposed.push(0);
        let ballot = state.ballot();
        state.rounds[call] = Round { phase: Phase::Preparing, ballot, ..Round::default() };
        state.send(Message::Prepare, ballot, self.asked(call));
    }

    fn asked(&self, call: usize) -> usize {
        match self.calls[call].level() {
            Level::Serial => REPLICAS,
            Level::LocalSerial => LOCAL,
        }
    }

    /// Number of replicas that any call contacts or waits for.
    fn matter(&self) -> usize {
        let local = |call: &Call| call.level() == Level::LocalSerial;
        let only_local = self.commit == Commit::LocalQuorum && self.calls.iter().all(local);
        if only_local { LOCAL } else { REPLICAS }
    }

    fn arrives(&self, state: &mut State, r: usize, what: Message, ballot: u8) {
        let write = Write { ballot, next: state.proposed[usize::from(ballot)] };
        let replica = &mut state.replicas[r];
        replica.coming &= !bit(ballot, what);
        let agreed = replica.hear(what, write);
        let (accepted, committed) = (replica.accepted, replica.committed);
        let phase = match what {
            Message::Prepare => Phase::Preparing,
            Message::Propose => Phase::Proposing,
            Message::Commit => Phase::Committing,
        };
        let asks = |round: &Round| round.ballot == ballot && round.phase == phase;
        let Some(call) = state.rounds.iter().position(asks) else { return };
        let round = &mut state.rounds[call];
        if agreed {
            round.heard[r / LOCAL] += 1;
            if what == Message::Prepare {
                round.accepted = round.accepted.max(accepted);
                round.committed = round.committed.max(committed);
            }
            self.goes_on(state, call);
        } else if what == Message::Prepare {
            self.prepare(state, call);
        }
    }

    fn goes_on(&self, state: &mut State, call: usize) {
        let round = &mut state.rounds[call];
        let [local, remote] = round.heard;
        let quorum = match self.calls[call].level() {
            Level::Serial => local + remote >= 4,
            Level::LocalSerial => local >= 2,
        };
        let committed = match self.commit {
            Commit::LocalQuorum => local >= 2,
            Commit::Quorum => local + remote >= 4,
            Commit::EachQuorum => local >= 2 && remote >= 2,
            Commit::All => local + remote == 6,
        };
        let ballot = round.ballot;
        match round.phase {
            Phase::Preparing if quorum => self.promised(state, call),
            Phase::Proposing if quorum => {
                (round.phase, round.heard) = (Phase::Committing, [0, 0]);
                state.send(Message::Commit, ballot, self.matter());
            }
            // A call that has committed another call's proposal then proposes its own.
            Phase::Committing if committed && round.replays && !matches!(self.calls[call], Call::Read(_)) => {
                self.prepare(state, call);
            }
            Phase::Committing if committed => {
                let id = matches!(self.calls[call], Call::Take(_)).then_some(round.read);
                self.returns(state, call, id);
            }
            _ => {}
        }
    }

    fn returns(&self, state: &mut State, call: usize, id: Option<u8>) {
        state.rounds[call] = Round { phase: Phase::Returned(id), ..Round::default() };
        if self.late_is_never {
            state.replicas.iter_mut().for_each(|replica| replica.coming = 0);
        }
    }

    fn promised(&self, state: &mut State, call: usize) {
        let asked = self.asked(call);
        // Drop late prepares: they could only make a replica reject more.
        let late = bit(state.rounds[call].ballot, Message::Prepare);
        state.replicas.iter_mut().for_each(|replica| replica.coming &= !late);
        let round = &mut state.rounds[call];
        let there = round.committed.next;
        let replays = round.accepted.ballot > round.committed.ballot;
        let proposal = match self.calls[call] {
            _ if replays => Some(round.accepted.next),
            Call::Take(_) if there > 0 => Some(there + 1),
            Call::Refill(_) if there == 0 => Some(3),
            _ => None,
        };
        let Some(next) = proposal else {
            return self.returns(state, call, None);
        };
        let ballot = round.ballot;
        *round = Round { phase: Phase::Proposing, ballot, read: there, replays, ..Round::default() };
        state.proposed[usize::from(ballot)] = next;
        state.send(Message::Propose, ballot, asked);
    }
}

impl Replica {
    /// Returns whether the replica agrees.
    fn hear(&mut self, what: Message, write: Write) -> bool {
        match what {
            Message::Prepare if write.ballot > self.promised => self.promised = write.ballot,
            Message::Propose if write.ballot >= self.promised => {
                (self.promised, self.accepted) = (write.ballot, write);
            }
            Message::Commit => {
                self.committed = self.committed.max(write);
                if self.accepted.ballot <= write.ballot {
                    self.accepted = Write::default();
                }
            }
            Message::Prepare | Message::Propose => return false,
        }
        true
    }
}
