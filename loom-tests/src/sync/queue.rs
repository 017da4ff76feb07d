//! A queue with several producers and one consumer, the actor.
//!
//! As in crossbeam's, a push claims a place and then marks it as written. Only the mark synchronises the push
//! with its pop. The claim is `Relaxed`, since crossbeam does not promise that pushes synchronise with each
//! other. A pop that finds a claimed place waits until it is written, as crossbeam's does.

use super::{AtomicBool, AtomicUsize, Ordering, Unseen};

/// More pushes than any model makes. The places are created in advance, because loom requires that a thread
/// synchronises with an atomic's creation before using the atomic.
const PLACES: usize = 8;

#[derive(Debug)]
pub(crate) struct SegQueue<T> {
    claimed: AtomicUsize,
    written: [AtomicBool; PLACES],
    values: Unseen<Vec<Option<T>>>,
    /// Used only by the consumer.
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
