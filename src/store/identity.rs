//! Which sequence a range is of.

use std::hash::{BuildHasher, RandomState};

/// Which sequence this is, beyond its name.
///
/// A sequence that is dropped and created again under the same name gets another *incarnation* (random, never
/// 0); one that is reset or set backwards gets the next *epoch*. Ranges of different identities may overlap,
/// so an allocator that sees its sequence's identity change throws away every id it still has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Random, given when the sequence was created.
    pub incarnation: u64,
    /// Counts resets of this incarnation, from 0.
    pub epoch: u64,
}

impl Identity {
    /// The identity of a sequence that is being created now.
    pub fn fresh() -> Self {
        // From the operating system's randomness: fastrand seeds itself with the uptime and the thread's
        // number alone, which two machines, or two copies of one, can share.
        let random = RandomState::new().hash_one(fastrand::u64(..));
        // Kept within 63 bits, so that every store can hold it as the integer it has; never 0.
        Self { incarnation: (random >> 1).max(1), epoch: 0 }
    }
}
