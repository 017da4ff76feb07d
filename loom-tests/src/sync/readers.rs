//! Lets loom see what a store races with.
//!
//! loom's partial-order reduction remembers of each atomic the last access alone. Where a thread loads an
//! atomic and later stores to it, its own load is that last access, and hides what another thread had loaded
//! before: that the other thread might as well have loaded *after* this store is then explored only by
//! chance. Drawing is of that very shape, load `current` and compare-and-swap it, so chance is not enough.
//!
//! So each reader leaves a mark of its own, and a store comes by the marks of all others. The
//! marks are failing, `Relaxed` read-modify-writes: they leave no value and synchronise
//! nothing, but they are never hidden.

use loom::thread::{self, ThreadId};

use super::{AtomicBool, Ordering, Unseen};

/// As many threads as loom allows.
const THREADS: usize = 5;

#[derive(Debug)]
pub(super) struct Readers {
    known: Unseen<Vec<ThreadId>>,
    marks: [AtomicBool; THREADS],
}

impl Readers {
    pub(super) fn new() -> Self {
        Self { known: Unseen::new(Vec::new()), marks: std::array::from_fn(|_| AtomicBool::new(false)) }
    }

    /// Before a load.
    pub(super) fn mark(&self) {
        let me = thread::current().id();
        let mine = self.known.with(|known| {
            known.iter().position(|reader| *reader == me).unwrap_or_else(|| {
                known.push(me);
                known.len() - 1
            })
        });
        touch(&self.marks[mine]);
    }

    /// Before a store.
    pub(super) fn meet(&self) {
        let me = thread::current().id();
        let known = self.known.with(|known| known.clone());
        for (reader, mark) in known.iter().zip(&self.marks) {
            if *reader != me {
                touch(mark);
            }
        }
    }
}

fn touch(mark: &AtomicBool) {
    let _ = mark.compare_exchange(true, true, Ordering::Relaxed, Ordering::Relaxed);
}
