//! Where ledgers are kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SequenceName;
use crate::store::StoreFuture;
use crate::sync::Mutex;

/// Keeps the ledger of each sequence, durably and away from the store. It never grants an id; it remembers
/// what was claimed.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Reads the ledger of a sequence; `None` if nothing was claimed of it yet.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) while the witness cannot be reached, and permanent kinds for
    /// what does not pass by itself.
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>>;

    /// Writes `wanted` if `seen` (`None`: nothing) is still what is kept; returns whether it was. Once it has
    /// returned `true`, the ledger survives a crash of the machine.
    ///
    /// # Errors
    /// As [`read`](Self::read), where nothing was written; [`UnknownOutcome`](ErrorKind::UnknownOutcome)
    /// where it may have been.
    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>>;
}

/// A witness in memory, for tests. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct MemoryWitness(Arc<Mutex<Memory>>);

#[derive(Clone, Debug, Default)]
struct Memory {
    ledgers: HashMap<SequenceName, Ledger>,
    away: bool,
    lose_replies: u32,
}

impl MemoryWitness {
    /// A witness that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses every call from now on, or answers again.
    pub fn set_away(&self, away: bool) {
        self.0.lock().away = away;
    }

    /// Applies the next writes, so many, without saying so.
    pub fn lose_replies(&self, writes: u32) {
        self.0.lock().lose_replies = writes;
    }

    /// The ledger of a sequence.
    pub fn ledger(&self, name: &str) -> Option<Ledger> {
        self.0.lock().ledgers.get(name).cloned()
    }

    /// Forgets what it knows of a sequence, as a witness does that was restored from a backup.
    pub fn set_ledger(&self, name: &SequenceName, ledger: Option<Ledger>) {
        let ledgers = &mut self.0.lock().ledgers;
        match ledger {
            Some(ledger) => drop(ledgers.insert(name.clone(), ledger)),
            None => drop(ledgers.remove(name)),
        }
    }
}

impl Witness for MemoryWitness {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        Box::pin(async move {
            let memory = self.0.lock();
            if memory.away {
                return Err(away());
            }
            Ok(memory.ledgers.get(name).cloned())
        })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let mut memory = self.0.lock();
            if memory.away {
                return Err(away());
            }
            let holds = memory.ledgers.get(name) == seen;
            if holds {
                memory.ledgers.insert(name.clone(), wanted.clone());
            }
            if memory.lose_replies > 0 {
                memory.lose_replies -= 1;
                return Err(Error::new(ErrorKind::UnknownOutcome, "the witness's answer was lost"));
            }
            Ok(holds)
        })
    }
}

fn away() -> Error {
    Error::new(ErrorKind::Unavailable, "the witness is away")
}
