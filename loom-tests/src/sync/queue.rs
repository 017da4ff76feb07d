//! A queue of several producers and one consumer: the actor's.
//!
//! As in crossbeam's, a push claims a place and then marks it as written; the mark alone carries the value to
//! its pop. The claim is `Relaxed`, so that pushes do not synchronise with each other, which crossbeam does
//! not promise; a pop that finds a place claimed but not yet written waits for it, as crossbeam's does.

use super::{AtomicBool, AtomicUsize, Ordering, Unseen};

/// More pushes than any model makes. Made in advance, since loom holds whoever
/// uses an atomic to its creation.
const PLACES: usize = 8;

#[derive(Debug)]
pub(crate) struct SegQueue<T> {
    claimed: AtomicUsize,
    written: [AtomicBool; PLACES],
    values: Unseen<Vec<Option<T>>>,
    /// The consumer's own.
    popped: Unseen<usize>,
}

impl<T> SegQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            claimed: AtomicUsize::new(0),
            written: std::array::from_fn(|_| AtomicBool::new(false)),
            values: Unseen::new((0..PLACES).map(|_| None).collect()),
            popped: Unseen::new(0),
        }
    }

    pub(crate) fn push(&self, value: T) {
        let place = self.claimed.fetch_add(1, Ordering::Relaxed);
        self.values.with(|values| values[place] = Some(value));
        self.written[place].store(true, Ordering::Release);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let place = self.popped.with(|popped| *popped);
        if place == self.claimed.load(Ordering::Relaxed) {
            return None;
        }
        while !self.written[place].load(Ordering::Acquire) {
            loom::thread::yield_now();
        }
        self.popped.with(|popped| *popped += 1);
        self.values.with(|values| values[place].take())
    }
}
