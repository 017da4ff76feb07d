//! What there is: the store, the witness, what each process is about to do, and what is under way.

use idmill::Range;
use idmill::guard::Ledger;
use idmill::store::{Bounds, Identity, SequenceInfo};

use super::MAX;
use crate::promises::UNIQUE;

/// The sequence as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) identity: Identity,
    pub(super) next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Granted {
    pub(super) row: Row,
    pub(super) range: Range,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum At {
    #[default]
    Idle,
    /// Was granted a range.
    Granted(Granted),
    /// Knows what it wants the ledger to be.
    Claiming(Granted, Option<Ledger>, Ledger),
    /// The range is its own, claimed in this life of the sequence.
    Holding(Granted, usize),
    /// Ids of the range were claimed before, up to this one.
    Refused(Granted, u128),
    Healing(Granted, u64),
    Releasing(Granted, Ledger, Ledger),
    GivingBack(Granted),
    Announcing {
        done: bool,
    },
    Announced {
        done: bool,
        seen: Ledger,
    },
    Removing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Write {
    Ledger(Option<Ledger>, Ledger),
    Raise(Identity, u64),
    GiveBack(Granted),
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) at: At,
    /// Below it the process takes all for claimed: the planted lookahead.
    pub(super) ahead: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) store: Option<Row>,
    pub(super) past: Vec<Option<Row>>,
    pub(super) ledger: Option<Ledger>,
    pub(super) ledgers: Vec<Option<Ledger>>,
    pub(super) processes: Vec<Process>,
    pub(super) flights: Vec<Write>,
    /// The ids that were used, by life of the sequence: what follows a reset or a removal is another, in
    /// which ids may come again.
    pub(super) used: Vec<u16>,
    pub(super) incarnations: u8,
    pub(super) calls: u8,
    pub(super) backs: u8,
    pub(super) witness_backs: u8,
    pub(super) losses: u8,
    pub(super) crashes: u8,
    pub(super) resets: u8,
    pub(super) removals: u8,
    pub(super) broken: Option<&'static str>,
}

impl At {
    /// What a process writes next, and where it is after an answer: `true` or `false`.
    pub(super) fn write(&self, life: usize) -> Option<(Write, Self, Self)> {
        Some(match self {
            At::Claiming(granted, seen, wanted) => {
                let ours = At::Holding(*granted, life);
                (Write::Ledger(seen.clone(), wanted.clone()), ours, At::Granted(*granted))
            }
            At::Healing(granted, next) => (Write::Raise(granted.row.identity, *next), At::Idle, At::Idle),
            At::Releasing(granted, seen, wanted) => {
                let write = Write::Ledger(Some(seen.clone()), wanted.clone());
                (write, At::GivingBack(*granted), At::Idle)
            }
            At::GivingBack(granted) => (Write::GiveBack(*granted), At::Idle, At::Idle),
            At::Announced { done, seen } => {
                let next = if *done { At::Idle } else { At::Removing };
                (Write::Ledger(Some(seen.clone()), seen.remove()), next, At::Announcing { done: *done })
            }
            At::Removing => (Write::Remove, At::Announcing { done: true }, At::Idle),
            _ => return None,
        })
    }
}

impl State {
    pub(super) fn does(&mut self, write: &Write) -> bool {
        match write {
            Write::Ledger(seen, wanted) => {
                let holds = self.ledger == *seen;
                if holds {
                    if seen.as_ref().is_some_and(|seen| begins_anew(seen, wanted)) {
                        self.used.push(0);
                    }
                    self.ledgers.push(self.ledger.replace(wanted.clone()));
                }
                holds
            }
            Write::Raise(identity, next) => {
                if let Some(row) = self.store.as_mut().filter(|row| row.identity == *identity) {
                    row.next = row.next.max(*next);
                }
                true
            }
            Write::GiveBack(granted) => {
                let last = |row: &&mut Row| {
                    row.identity == granted.row.identity && u128::from(row.next) == granted.range.end()
                };
                if let Some(row) = self.store.as_mut().filter(last) {
                    row.next = granted.range.start();
                }
                true
            }
            Write::Remove => {
                self.store = None;
                true
            }
        }
    }

    pub(super) fn remember(&mut self, before: Option<Row>) {
        if self.store != before && self.backs > 0 && !self.past.contains(&before) {
            self.past.push(before);
        }
    }

    pub(super) fn uses(&mut self, granted: &Granted, life: usize) {
        let used = &mut self.used[life];
        for id in granted.range.ids() {
            if *used & (1 << id) != 0 {
                self.broken = Some(UNIQUE);
            }
            *used |= 1 << id;
        }
    }
}

/// Whether the sequence was reset or removed on purpose between the two.
fn begins_anew(seen: &Ledger, wanted: &Ledger) -> bool {
    let (before, after) = (seen.identity, wanted.identity);
    if before.incarnation == after.incarnation { after.epoch > before.epoch } else { seen.removed }
}

pub(super) fn info(row: &Row) -> SequenceInfo {
    let name = idmill::SequenceName::new("s").expect("valid");
    let mut info = SequenceInfo::new(name, Bounds::new(1, MAX).expect("not empty"));
    (info.identity, info.next) = (row.identity, Some(row.next).filter(|next| *next <= MAX));
    info
}
