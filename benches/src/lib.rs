//! Shared code of idmill's benchmarks: allocators over the memory store, threads that start together, the
//! table of ranges that is printed at the end, charts, and figures that others have published.

pub mod plot;
pub mod published;
pub mod ranges;
pub mod threads;

use std::time::Duration;

use idmill::store::{MemoryStore, Store};
use idmill::{Allocator, Order, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};

/// A sequence whose refills have a negligible cost: large steps make them rare, the store is in memory, and
/// they run on a separate thread.
pub fn sequence(order: Order, step: u64) -> (Sequences, Allocator<u64>) {
    let ids = sequences(MemoryStore::new());
    let allocator =
        ids.sequence::<u64>("bench").order(order).step(step).open_blocking().expect("the memory store opens");
    (ids, allocator)
}

/// The sequences of a store, refilled by a separate thread.
pub fn sequences(store: impl Store + 'static) -> Sequences {
    Sequences::builder(store).own_thread().start().expect("the thread starts")
}

/// A memory store that answers after `latency`.
pub fn slow_store(latency: Duration) -> FaultyStore {
    FaultyStore::with_faults(Faults::default().latency(latency))
}

/// The timeout of a draw that must wait: longer than any benchmark.
pub const TIMEOUT: Duration = Duration::from_secs(600);
