//! The cache: one item, which is always written as a whole.

use idmill_shared_cache::cache::{Added, Command, LookReply};

use super::{Bug, COUNT};

/// The stored number encodes where the ids end, how many are left, and when the next range is prepared.
pub(super) type Number = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Sent {
    Add,
    Look,
    Peek,
    Clear(u8),
    Put(u8, Number),
    Release(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Stub,
    Number(Number),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) item: Option<(Item, u8)>,
    /// The cas of the last write.
    written: u8,
    /// Number of restarts, which also identifies every connection to the server.
    pub(super) restarts: u8,
}

pub(super) fn small(id: u64) -> u8 {
    u8::try_from(id).expect("models are small")
}

impl Sent {
    pub(super) fn of(command: Command) -> Self {
        match command {
            Command::Add { .. } => Self::Add,
            Command::Look => Self::Look,
            Command::Peek => Self::Peek,
            Command::Clear { cas } => Self::Clear(small(cas)),
            Command::Put { cas, number: put } => Self::Put(small(cas), put),
            Command::Release { cas } => Self::Release(small(cas)),
            // Other processes see a deletion as an eviction, which can happen at any moment in the model.
            Command::Delete => unreachable!("the model sends no deletion"),
        }
    }
}

pub(super) enum Reply {
    Added(Added),
    LookReply(LookReply),
    Done(bool),
}

impl Server {
    /// All items are lost, and the cas starts again.
    pub(super) fn restarted(self) -> Self {
        Self { restarts: self.restarts + 1, ..Self::default() }
    }

    pub(super) fn write(&mut self, item: Item) -> u8 {
        self.written += 1;
        self.item = Some((item, self.written));
        self.written
    }

    fn has(self, cas: u8) -> bool {
        self.item.is_some_and(|(_, here)| here == cas)
    }

    pub(super) fn does(&mut self, what: Sent, bug: Bug) -> Reply {
        match what {
            Sent::Add => Reply::Added(self.add()),
            Sent::Peek if self.item.is_none() => Reply::LookReply(LookReply::Nothing),
            Sent::Look | Sent::Peek => Reply::LookReply(self.look()),
            Sent::Clear(cas) | Sent::Release(cas) => {
                let done = self.has(cas);
                self.item = self.item.filter(|_| !done);
                Reply::Done(done)
            }
            Sent::Put(cas, number) => {
                let done = self.has(cas) || bug == Bug::UnconditionalInstall;
                if done {
                    self.write(Item::Number(number));
                }
                Reply::Done(done)
            }
        }
    }

    fn add(&mut self) -> Added {
        match self.item {
            None => Added::Missing,
            Some((Item::Stub, _)) => Added::NotANumber,
            Some((Item::Number(number), _)) => {
                let number = number + COUNT;
                Added::Number { number, cas: self.write(Item::Number(number)).into() }
            }
        }
    }

    fn look(&mut self) -> LookReply {
        match self.item {
            None => LookReply::Won { cas: self.write(Item::Stub).into() },
            Some((Item::Stub, _)) => LookReply::Stub,
            Some((Item::Number(number), cas)) => LookReply::Number { number, cas: cas.into() },
        }
    }
}
