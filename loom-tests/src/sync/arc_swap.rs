//! `ArcSwap`, as an atomic index into an arena.
//!
//! # Orderings
//!
//! The same orderings as for arc-swap's pointer, with `AcqRel` instead of `SeqCst`. arc-swap needs `SeqCst`
//! for its debts, and only promises its users that the data is published.
//!
//! - `load`: acquires, and may be stale like any load.
//! - `swap`: acquires and releases.
//! - `store`: a swap, hence atomic with respect to others. The swap releases. arc-swap's `store` also
//!   acquires the old pointer, but only to drop it, so this `store` does not.
//! - `compare_and_swap`: a load and, only if it found the expected value, a compare-exchange that acquires
//!   and releases.
//!
//! Stored values stay in the arena, so an address is never reused. Users of arc-swap rely on holding the
//! `Arc` that they compare with (see *No ABA* in `stock`).

use std::sync::Arc;

use super::readers::Readers;
use super::{AtomicUsize, Ordering, Unseen};

/// arc-swap's `RefCnt`.
pub(crate) trait Pointer: Clone {
    fn same(&self, other: &Self) -> bool;
}

impl<T> Pointer for Arc<T> {
    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

impl<T> Pointer for Option<Arc<T>> {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Swap<P> {
    index: AtomicUsize,
    /// Each pointer that was ever stored, without duplicates: an index is equivalent to the pointer.
    arena: Unseen<Vec<P>>,
    readers: Readers,
}

pub(crate) type ArcSwap<T> = Swap<Arc<T>>;
pub(crate) type ArcSwapOption<T> = Swap<Option<Arc<T>>>;

impl<P: Pointer> Swap<P> {
    pub(crate) fn new(value: P) -> Self {
        Self { index: AtomicUsize::new(0), arena: Unseen::new(vec![value]), readers: Readers::new() }
    }

    pub(crate) fn load_full(&self) -> P {
        self.readers.mark();
        self.at(self.index.load(Ordering::Acquire))
    }

    pub(crate) fn store(&self, value: P) {
        self.readers.meet();
        self.index.swap(self.place(value), Ordering::Release);
    }

    /// Returns the pointer that was replaced.
    pub(crate) fn swap(&self, value: P) -> P {
        self.readers.meet();
        self.at(self.index.swap(self.place(value), Ordering::AcqRel))
    }

    /// Returns the pointer that was found: `expected` if it was replaced with `value`.
    pub(crate) fn compare_and_swap(&self, expected: &P, value: P) -> P {
        self.readers.mark();
        let (old, new) = (self.place(expected.clone()), self.place(value));
        loop {
            let found = self.index.load(Ordering::Acquire);
            let swap = || self.index.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
            if found != old {
                return self.at(found);
            }
            self.readers.meet();
            if swap().is_ok() {
                return self.at(old);
            }
        }
    }

    fn place(&self, value: P) -> usize {
        self.arena.with(|arena| {
            arena.iter().position(|known| known.same(&value)).unwrap_or_else(|| {
                arena.push(value);
                arena.len() - 1
            })
        })
    }

    fn at(&self, index: usize) -> P {
        self.arena.with(|arena| arena[index].clone())
    }
}
