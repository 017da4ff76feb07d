//! Makes loom see the loads that a store races with.
//!
//! loom's partial-order reduction keeps only the last access of each atomic. If a thread loads an atomic and
//! later stores to it, its own load is that last access and hides another thread's earlier load. loom then
//! may never explore the case in which the other thread loads *after* this store. A draw does exactly that:
//! it loads `current` and compare-and-swaps it.
//!
//! So each reader has its own mark, and a store touches the marks of all other readers. Touching a mark is a
//! failing, `Relaxed` read-modify-write: it changes no value and synchronises nothing, but loom never hides
//! it.

use loom::thread::{self, ThreadId};

use super::{AtomicBool, Ordering, Unseen};

/// The maximum number of threads in loom.
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

    /// Call this before a load.
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

    /// Call this before a store.
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
