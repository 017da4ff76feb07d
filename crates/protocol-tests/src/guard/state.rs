//! The state: the store, the witness, the next action of each process, and the writes in flight.

use idmill::IdRange;
use idmill::store::{Bounds, Identity, SequenceInfo};
use idmill_guard::{Announced, Ledger};

use super::MAX;
use crate::promises::UNIQUE;

/// The sequence in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) identity: Identity,
    pub(super) next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Granted {
    pub(super) row: Row,
    pub(super) range: IdRange,
}

/// A task of an administrator, through the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    Removes {
        forgets: bool,
    },
    /// Restarts at the first id.
    Resets,
    /// Raises the sequence: the ids below are in use.
    Raises {
        to: u64,
    },
}

/// A task, and the identities when it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Known {
    pub(super) task: Task,
    /// The ledger's identity.
    pub(super) ledger: Identity,
    /// The store's identity.
    pub(super) stored: Identity,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum At {
    #[default]
    Idle,
    /// Has read the ledger, and is to reserve.
    Looked(Option<Ledger>),
    /// Was granted a range; with the earlier ledger, if the range is below its top.
    Granted(Granted, Option<Box<Ledger>>),
    /// Has read the ledger, and is to write the wanted one.
    Claiming(Granted, Option<Ledger>, Ledger),
    /// The range is below earlier claims, and the ledger has changed.
    Outdated(Granted),
    /// Owns the range. The number is the life of the sequence in which the range was claimed.
    Holding(Granted, usize),
    /// Ids of the range were claimed before; the number is the first id above all claims.
    Refused(Granted, u128),
    /// The ledger has another incarnation or a later epoch. The flag: whether a task is pending.
    Foreign(Granted, bool),
    Healing(Granted, u64),
    Releasing(Granted, Ledger, Ledger),
    GivingBack(Granted),
    Announcing(Task),
    Announced(Known, Option<Ledger>, Ledger),
    /// Has announced the task, and calls the store.
    Changing(Known),
    Confirming(Known),
    Confirmed(Known, Ledger, Ledger),
    Forgetting,
    Forgotten(Ledger, Ledger),
    /// The store refused the task.
    Withdrawing,
    Withdrawn(Ledger, Ledger),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Write {
    Ledger {
        seen: Option<Ledger>,
        wanted: Box<Ledger>,
        /// Whether ids may be granted again after this write, as requested.
        begins: bool,
    },
    Raise(Identity, u64),
    /// A raise over ids that are in use.
    Skip(Identity, u64),
    GiveBack(Granted),
    Remove,
    Reset(Identity),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) at: At,
    /// The process treats all ids below this one as claimed: the planted lookahead.
    pub(super) ahead: u64,
}

/// The remaining number of each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Ranges that are reserved.
    pub(crate) calls: u8,
    /// Times that the store goes back.
    pub(crate) backs: u8,
    /// Times that the witness goes back.
    pub(crate) witness_backs: u8,
    /// Answers that are lost or late.
    pub(crate) losses: u8,
    pub(crate) crashes: u8,
    /// Writes that the store or the witness certainly refuses.
    pub(crate) refusals: u8,
    /// Times that the store is set back without an announcement.
    pub(crate) resets: u8,
    /// Times that the epoch grows without an announcement: by one, as in a revocation, or by more, as in a
    /// restored dump.
    pub(crate) epochs: u8,
    /// Ids that are drawn without the guard.
    pub(crate) unguarded: u8,
    pub(crate) removals: u8,
    /// Times that the store is set back through the guard.
    pub(crate) announced_resets: u8,
    /// Times that the sequence is raised through the guard.
    pub(crate) raises: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) store: Option<Row>,
    pub(super) past: Vec<Option<Row>>,
    pub(super) ledger: Option<Ledger>,
    pub(super) ledgers: Vec<Option<Ledger>>,
    pub(super) processes: Vec<Process>,
    pub(super) flights: Vec<Write>,
    /// The ids that were used, by life of the sequence. A new life, in which ids may repeat, begins with a
    /// confirmed reset or a removal that also drops its ids from the ledger.
    pub(super) used: Vec<u16>,
    /// The ids that were drawn without the guard from a store that never went back.
    pub(super) unguarded: u16,
    /// Whether the store may grant unguarded ids again.
    pub(super) has_gone_back: bool,
    pub(super) incarnations: u8,
    pub(super) left: Budget,
    /// Whether a process raised the store while a reset was pending.
    pub(super) is_overtaken: bool,
    pub(super) broken: Option<&'static str>,
}

impl At {
    /// Returns the next write of a process, and its state after the answer `true` and `false`.
    pub(super) fn write(&self, life: usize) -> Option<(Write, Self, Self)> {
        let ledger = |seen: &Ledger, wanted: &Ledger, begins| Write::Ledger {
            seen: Some(seen.clone()),
            wanted: Box::new(wanted.clone()),
            begins,
        };
        Some(match self {
            At::Claiming(granted, seen, wanted) => {
                let write =
                    Write::Ledger { seen: seen.clone(), wanted: Box::new(wanted.clone()), begins: false };
                (write, At::Holding(*granted, life), At::Granted(*granted, None))
            }
            At::Healing(granted, next) => (Write::Raise(granted.row.identity, *next), At::Idle, At::Idle),
            At::Releasing(granted, seen, wanted) => {
                (ledger(seen, wanted, false), At::GivingBack(*granted), At::Idle)
            }
            At::GivingBack(granted) | At::Outdated(granted) => {
                (Write::GiveBack(*granted), At::Idle, At::Idle)
            }
            At::Announced(known, seen, wanted) => {
                let write =
                    Write::Ledger { seen: seen.clone(), wanted: Box::new(wanted.clone()), begins: false };
                (write, At::Changing(*known), At::Announcing(known.task))
            }
            At::Changing(known) => match known.task {
                // A missing sequence also counts as removed.
                Task::Removes { .. } => (Write::Remove, At::Confirming(*known), At::Idle),
                Task::Resets => (Write::Reset(known.stored), At::Confirming(*known), At::Withdrawing),
                Task::Raises { to } => (Write::Skip(known.stored, to), At::Confirming(*known), At::Idle),
            },
            At::Confirmed(known, seen, wanted) => {
                let then =
                    if known.task == (Task::Removes { forgets: true }) { At::Forgetting } else { At::Idle };
                (ledger(seen, wanted, known.task == Task::Resets), then, At::Confirming(*known))
            }
            At::Forgotten(seen, wanted) => (ledger(seen, wanted, false), At::Idle, At::Forgetting),
            At::Withdrawn(seen, wanted) => (ledger(seen, wanted, false), At::Idle, At::Withdrawing),
            _ => return None,
        })
    }

    /// The state of a process after a write that was certainly refused.
    pub(super) fn refused(&self) -> Option<Self> {
        Some(match self {
            At::Claiming(granted, ..) => At::GivingBack(*granted),
            At::Changing(known) if !matches!(known.task, Task::Raises { .. }) => At::Withdrawing,
            At::Changing(_)
            | At::Announced(..)
            | At::Confirmed(..)
            | At::Forgotten(..)
            | At::Withdrawn(..) => At::Idle,
            _ => return None,
        })
    }
}

impl State {
    pub(super) fn does(&mut self, write: &Write) -> bool {
        match write {
            Write::Ledger { seen, wanted, begins } => {
                let holds = self.ledger == *seen;
                if holds {
                    if *begins || seen.as_ref().is_some_and(|seen| follows_a_forgotten(seen, wanted)) {
                        self.used.push(0);
                        self.unguarded = 0;
                    }
                    self.ledgers.push(self.ledger.replace((**wanted).clone()));
                    if self.has_gone_back {
                        self.protects_below();
                    }
                }
                holds
            }
            Write::Raise(identity, next) => {
                if let Some(row) = self.store.as_mut().filter(|row| row.identity == *identity) {
                    row.next = row.next.max(*next);
                }
                true
            }
            Write::Skip(identity, next) => {
                let row = self.store.as_mut().filter(|row| row.identity == *identity);
                if let Some(row) = row.filter(|row| row.next < *next) {
                    // After a restore or a removal, the raise also skips ids that were granted before.
                    let skipped = if self.has_gone_back || self.incarnations > 1 {
                        row.next..row.next
                    } else {
                        row.next..*next
                    };
                    let used = self.used.last_mut().expect("the first life");
                    skipped.for_each(|id| *used |= 1 << id);
                    row.next = *next;
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
            Write::Reset(expected) => {
                let row = self.store.as_mut().filter(|row| row.identity == *expected);
                if row.is_some() {
                    self.unguarded = 0;
                }
                row.map(|row| (row.identity.epoch, row.next) = (row.identity.epoch + 1, 1)).is_some()
            }
        }
    }

    pub(super) fn remember(&mut self, before: Option<Row>) {
        if self.store != before && self.left.backs > 0 && !self.past.contains(&before) {
            self.past.push(before);
        }
    }

    pub(super) fn uses(&mut self, granted: &Granted, life: usize) {
        // The unguarded ids are of the latest life.
        let unguarded = if life + 1 == self.used.len() { self.unguarded } else { 0 };
        let used = &mut self.used[life];
        for id in granted.range {
            if (*used | unguarded) & (1 << id) != 0 {
                self.broken = Some(UNIQUE);
            }
            *used |= 1 << id;
        }
    }

    /// Forgets the unguarded ids that a store that went back may grant: those at or above the top of the
    /// ledger, also of one that a process read before it reserves.
    pub(super) fn protects_below(&mut self) {
        self.has_gone_back = true;
        let top = |ledger: &Option<Ledger>| ledger.as_ref().map_or(0, Ledger::top);
        let looked = self.processes.iter().filter_map(|process| match &process.at {
            At::Looked(seen) => Some(top(seen)),
            _ => None,
        });
        let lowest = looked.min().unwrap_or(u128::MAX).min(top(&self.ledger));
        self.unguarded &= u16::try_from((1_u128 << lowest.min(15)) - 1).expect("15 bits");
    }

    /// Whether a task of an administrator is under way.
    pub(super) fn has_task(&self) -> bool {
        let announced = self.ledger.as_ref().is_some_and(|ledger| ledger.announced.is_some());
        announced
            || self
                .processes
                .iter()
                .any(|process| matches!(process.at, At::Announcing(_) | At::Announced(..)))
    }

    pub(super) fn is_pending(&self) -> bool {
        self.ledger.as_ref().and_then(|ledger| ledger.announced).is_some_and(Announced::is_pending)
    }
}

fn follows_a_forgotten(seen: &Ledger, wanted: &Ledger) -> bool {
    seen.announced == Some(Announced::Forgotten) && seen.identity.incarnation != wanted.identity.incarnation
}

pub(super) fn info(row: &Row) -> SequenceInfo {
    let name = idmill::SequenceName::new("s").expect("valid");
    let mut info = SequenceInfo::new(name, Bounds::new(1, MAX).expect("not empty"));
    (info.identity, info.next) = (row.identity, Some(row.next).filter(|next| *next <= MAX));
    info
}
