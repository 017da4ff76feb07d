//! Stand-ins for the model checker. They have the names that the library's `src/sync.rs` exports. They are
//! built from atomics, for which loom explores every interleaving and every stale read.
//!
//! | here | in production | compared with |
//! | --- | --- | --- |
//! | atomics | std | loom's own; `SeqCst` counts as `AcqRel` there, which is weaker |
//! | [`Mutex`] | parking_lot | unlock → next lock synchronises, and nothing more |
//! | [`ArcSwap`] | arc-swap 1.9.3 | `lib.rs` and `strategy/hybrid.rs`, all five operations used here |
//! | [`Notify`] | tokio 1.54 | `sync/notify.rs`: one permit; `notify_one` synchronises with the waiter |
//! | [`oneshot`] | tokio 1.54 | `sync/oneshot.rs`: the same bits, with the same orderings |
//! | [`SegQueue`] | crossbeam-queue 0.3 | `seg_queue.rs`: the slot's `WRITE` bit links a push to its pop |
//! | [`Map`] | papaya 0.2 | a change synchronises with the `get` that sees it; look-ups do not |
//!
//! Values are kept in std containers that loom does not see, so storing a value synchronises nothing: only
//! the modelled atomics next to it do. Access to these containers is always safe, because loom runs one
//! thread at a time.
//!
//! *An ordering that is too weak is detected.* Every [`Segment`](crate::state::segment::Segment) holds a
//! modelled atomic, and loom requires that each access to an atomic happens after its creation. If the
//! ordering of the atomic store that publishes a segment is too weak, loom reports the first draw that loads
//! the pointer to the segment.

// These std primitives are deliberately hidden from loom.
#![allow(clippy::disallowed_types)]

mod arc_swap;
mod map;
mod notify;
pub(crate) mod oneshot;
mod queue;
mod readers;

pub(crate) use arc_swap::{ArcSwap, ArcSwapOption};
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use map::Map;
pub(crate) use notify::Notify;
pub(crate) use queue::SegQueue;
/// Counters are part of no protocol: modelling them would only multiply the interleavings.
pub(crate) use std::sync::atomic::AtomicU64 as Counter;
/// std's `Arc`, as in the library. Safe code cannot free its value too early, and loom's `Arc` would make
/// each clone one more step to explore. An `Arc` that is passed to other threads without synchronisation is
/// detected at the value in it.
pub(crate) use std::sync::{Arc, Weak};

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use loom::sync::MutexGuard;

/// Unused: no model covers the limit of waiting callers.
#[derive(Debug)]
pub(crate) enum OwnedSemaphorePermit {}

/// Catches nothing: loom reports a panic as a finding.
#[allow(clippy::unnecessary_wraps, reason = "the library's function returns `None` after a panic")]
pub(crate) fn unless_it_panics<R>(work: impl FnOnce() -> R) -> Option<R> {
    Some(work())
}

/// Adds no padding: loom does not model where a value is in memory.
#[derive(Debug, Default)]
pub(crate) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// loom's mutex with parking_lot's interface.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// A std mutex around values that loom must not see. It is never contended: loom runs one thread at a time,
/// and no modelled operation runs while it is held.
#[derive(Debug, Default)]
struct Unseen<T>(std::sync::Mutex<T>);

impl<T> Unseen<T> {
    fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
