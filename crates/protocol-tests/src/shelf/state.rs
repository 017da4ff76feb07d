//! The state: the store, the witness, the next action of each process, and the writes in flight.

use idmill::IdRange;
use idmill::store::Identity;
use idmill_guard::Ledger;

use super::rules::Shelf;
use crate::promises::{CURRENT, ONE_PLACE, ORDERED, RAISED, UNIQUE};

/// The sequence in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) identity: Identity,
    pub(super) next: u64,
    /// The history of the store's server in which the row was last written.
    pub(super) history: u8,
}

/// Ids that belong to one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    /// The identity under which they were granted.
    pub(super) identity: Identity,
    pub(super) range: IdRange,
    /// The life of the sequence that the ids count for. See [`State::lives`].
    pub(super) life: u8,
}

/// A raise of the sequence, as an administrator decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Raise {
    pub(super) identity: Identity,
    pub(super) to: u64,
    /// The history of the server when the sequence was read. In any other history, the store still grants
    /// nothing after the raise.
    pub(super) here: u8,
}

/// A swap of the shelf: the text that was read, and the text to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Swap {
    pub(super) seen: Option<Shelf>,
    pub(super) wanted: Shelf,
}

/// The next action of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum At {
    /// Draws from its ids, if it has any.
    #[default]
    Idle,
    /// Was granted ids by the store, and is to claim them; with the ledger from before the reserve.
    Granted(Held, Option<Box<Ledger>>),
    /// Planted: has read the identity of the sequence, and is to read the shelf.
    Looked(Identity),
    /// Has read the shelf, and is to write it without the ids.
    Taking(Swap, Held),
    /// Has taken ids, and is to read the identity of the sequence.
    Taken(Held),
    /// The sequence still had the identity of the taken ids. Is to claim them.
    Confirmed(Held),
    /// Is to remove the claim of the ids, which it returns.
    Unclaiming(Held),
    /// Is to offer the ids to the store.
    GivingBack(Held),
    /// Is to read the shelf.
    Shelving(Held),
    /// The shelf is of another incarnation. Is to read the identity of the sequence.
    Comparing(Held, Shelf),
    /// Is to write the shelf with the ids.
    Adding(Swap, Held),
    /// An administrator: is to read the sequence, and to raise it above all its ids.
    Raising,
    /// Is to read the shelf.
    Clearing(Raise),
    Marking(Swap, Raise),
    /// Is to raise `next` of the sequence.
    Setting(Raise),
    /// Got no answer, and the store is to send the write again. With the state before the write.
    Resending(Box<At>),
}

/// A write in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Write {
    Reserve,
    GiveBack(Held),
    Shelf(Swap),
    Ledger(Option<Ledger>, Ledger),
    Raise(Raise),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) at: At,
    /// The ids in memory.
    pub(super) held: Option<Held>,
    /// The last id that it handed out, with its identity.
    pub(super) last: Option<(Identity, u64)>,
    /// The ids that it handed out, if other processes may get the same ones after a restore.
    pub(super) own: u16,
    /// The identities that the sequence had since the process began to take, one bit each.
    pub(super) since: u8,
    /// The sequence was raised to this id before the process began to take.
    pub(super) above: u64,
    /// The history of the server when the process began to take.
    pub(super) history: u8,
}

/// The remaining number of each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Ranges that are reserved.
    pub(super) calls: u8,
    /// Ranges that are returned.
    pub(super) returns: u8,
    /// Answers that are lost or late.
    pub(super) losses: u8,
    pub(super) crashes: u8,
    /// Writes that the witness certainly refuses.
    pub(super) refusals: u8,
    /// Times that the sequence is set to its first id.
    pub(super) resets: u8,
    pub(super) revocations: u8,
    /// Times that the sequence is removed.
    pub(super) removals: u8,
    pub(super) raises: u8,
    /// Times that the store goes back to an earlier state.
    pub(super) backs: u8,
    /// Times that a server without the last writes takes over.
    pub(super) failovers: u8,
    /// Times that the witness goes back to an earlier state.
    pub(super) witness_backs: u8,
    /// Takes by a process without the guard.
    pub(super) unguarded: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) row: Option<Row>,
    pub(super) shelf: Option<Shelf>,
    /// The history of the server that the store is on.
    pub(super) here: u8,
    /// The states that the store can go back to.
    pub(super) past: Vec<(Option<Row>, Option<Shelf>)>,
    pub(super) ledger: Option<Ledger>,
    /// The ledgers that the witness can go back to; with the shelf, if the ledger keeps it.
    pub(super) ledgers: Vec<(Option<Ledger>, Option<Shelf>)>,
    pub(super) processes: Vec<Process>,
    pub(super) flights: Vec<Write>,
    /// Each identity that the sequence had, with its life. A new life, in which ids may repeat, begins with
    /// a reset, or with a removal and a creation.
    pub(super) lives: Vec<(Identity, u8)>,
    /// The ids that were handed out, by life.
    pub(super) used: Vec<u16>,
    /// The sequence was raised to this id in its current life.
    pub(super) raised: u64,
    /// The first id that was never reserved, in the current life.
    pub(super) reached: u64,
    pub(super) left: Budget,
    pub(super) broken: Option<&'static str>,
}

impl Swap {
    fn shelves(&mut self) -> Vec<&mut Shelf> {
        self.seen.iter_mut().chain([&mut self.wanted]).collect()
    }
}

impl Held {
    pub(super) fn overlaps(&self, identity: Identity, range: &IdRange) -> bool {
        self.identity == identity && self.range.overlaps(range)
    }
}

impl At {
    /// Whether a process in this state asks for ids.
    pub(super) fn asks(&self) -> bool {
        match self {
            Self::Resending(before) => before.asks(),
            Self::Granted(..) | Self::Looked(_) | Self::Taking(..) | Self::Taken(_) | Self::Confirmed(_) => {
                true
            }
            _ => false,
        }
    }

    fn shelves(&mut self) -> Vec<&mut Shelf> {
        match self {
            Self::Taking(swap, _) | Self::Adding(swap, _) | Self::Marking(swap, ..) => swap.shelves(),
            Self::Comparing(_, seen) => vec![seen],
            Self::Resending(before) => before.shelves(),
            _ => Vec::new(),
        }
    }

    /// The ids that belong to a process in this state.
    pub(super) fn held(&self) -> Option<Held> {
        match self {
            Self::Granted(held, _)
            | Self::Taken(held)
            | Self::Confirmed(held)
            | Self::Unclaiming(held)
            | Self::GivingBack(held)
            | Self::Shelving(held)
            | Self::Comparing(held, _)
            | Self::Adding(_, held) => Some(*held),
            _ => None,
        }
    }
}

impl State {
    /// The bit of an identity in [`Process::since`].
    pub(super) fn bit(&self, identity: Identity) -> u8 {
        let place = self.lives.iter().position(|(known, _)| *known == identity);
        place.map_or(0, |place| 1 << place)
    }

    pub(super) fn life(&self, identity: Identity) -> u8 {
        let known = self.lives.iter().find(|(known, _)| *known == identity);
        known.expect("each identity is noted").1
    }

    /// The sequence has an identity that it did not have just before.
    pub(super) fn changes_identity(&mut self, is_another_life: bool) {
        let Some(row) = self.row else { return };
        if self.bit(row.identity) == 0 {
            if is_another_life {
                self.used.push(0);
                (self.raised, self.reached) = (0, row.next);
            }
            let life = u8::try_from(self.used.len() - 1).expect("few");
            self.lives.push((row.identity, life));
        }
        let bit = self.bit(row.identity);
        for process in self.processes.iter_mut().filter(|process| process.at.asks()) {
            process.since |= bit;
        }
    }

    /// A process begins to ask for ids.
    pub(super) fn begins(&mut self, p: usize) {
        let since = self.row.map_or(0, |row| self.bit(row.identity));
        let process = &mut self.processes[p];
        (process.since, process.above, process.history) = (since, self.raised, self.here);
    }

    /// A process gets ids: it may hand them out from now on.
    pub(super) fn gets(&mut self, p: usize, mut held: Held) {
        let (bit, process) = (self.bit(held.identity), &mut self.processes[p]);
        if process.since & bit == 0 {
            // The ids are of a life that had ended before the process asked. Others may get them too.
            self.broken = self.broken.or(Some(CURRENT));
            held.life = u8::try_from(self.used.len() - 1).expect("few");
        }
        if held.range.start() < process.above {
            self.broken = self.broken.or(Some(RAISED));
        }
        (process.at, process.held) = (At::Idle, Some(held));
    }

    /// A process hands out its next id.
    pub(super) fn uses(&mut self, p: usize, repeats: bool) {
        let process = &mut self.processes[p];
        let Some(held) = &mut process.held else { return };
        let id = held.range.take_front(1).start();
        let (identity, bit, life) = (held.identity, 1_u16 << id, usize::from(held.life));
        if held.range.is_empty() {
            process.held = None;
        }
        if process.last.is_some_and(|(known, last)| known == identity && id <= last) {
            self.broken = self.broken.or(Some(ORDERED));
        }
        let before = if repeats { &mut process.own } else { &mut self.used[life] };
        if *before & bit != 0 {
            self.broken = Some(UNIQUE);
        }
        *before |= bit;
        process.last = Some((identity, id));
    }

    /// Checks that no id is both on the shelf and in a process, or was handed out.
    pub(super) fn checks_places(&mut self) {
        let Some(shelf) = &self.shelf else { return };
        let has = |process: &Process, range: &IdRange| {
            let mut held = [process.held, process.at.held()].into_iter().flatten();
            held.any(|held| held.overlaps(shelf.identity, range))
        };
        let used = self.used[usize::from(self.life(shelf.identity))];
        let is_elsewhere = |range: &IdRange| {
            range.iter().any(|id| used & 1 << id != 0)
                || self.processes.iter().any(|process| has(process, range))
        };
        if shelf.ranges.iter().any(is_elsewhere) {
            self.broken = self.broken.or(Some(ONE_PLACE));
        }
    }

    /// Drops what no longer matters, so that fewer states differ.
    pub(super) fn forgets(&mut self) {
        self.renumbers();
        for process in self.processes.iter_mut().filter(|process| !process.at.asks()) {
            (process.since, process.above, process.history) = (0, 0, 0);
        }
    }

    /// Renumbers the texts of the shelf: a text that no part of the state has any more cannot matter. Returns
    /// the number of the next text.
    pub(super) fn renumbers(&mut self) -> u64 {
        let mut known: Vec<u64> = self.shelves().map(|shelf| shelf.stamp).collect();
        known.sort_unstable();
        known.dedup();
        for shelf in self.shelves() {
            shelf.stamp = known.partition_point(|stamp| *stamp < shelf.stamp) as u64;
        }
        known.len() as u64
    }

    fn shelves(&mut self) -> impl Iterator<Item = &mut Shelf> {
        let past = self.past.iter_mut().filter_map(|(_, shelf)| shelf.as_mut());
        let ledgers = self.ledgers.iter_mut().filter_map(|(_, shelf)| shelf.as_mut());
        let flights = self.flights.iter_mut().flat_map(|write| match write {
            Write::Shelf(swap) => swap.shelves(),
            _ => Vec::new(),
        });
        let processes = self.processes.iter_mut().flat_map(|process| process.at.shelves());
        self.shelf.iter_mut().chain(past).chain(ledgers).chain(flights).chain(processes)
    }

    /// The ids that are handed out, in memory, on the shelf, or about to be so, in the current life.
    pub(super) fn accounted(&self) -> u16 {
        let used = self.used.last().copied().unwrap_or_default();
        let shelved = self.shelf.iter().flat_map(|shelf| &shelf.ranges);
        let held = self.processes.iter().flat_map(|process| [process.held, process.at.held()]);
        let held = held.flatten().map(|held| held.range);
        shelved.copied().chain(held).flatten().fold(used, |ids, id| ids | 1 << id)
    }
}
