//! The identity of a sequence.

use std::hash::{BuildHasher, RandomState};

/// Identifies a sequence beyond its name.
///
/// A sequence that is removed and created again under the same name gets another *incarnation* (random, never
/// 0). A sequence that is reset, set backwards or revoked gets the next *epoch*. Ranges of different
/// identities may overlap, so an allocator whose sequence's identity changes drops all ids in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Set at creation: random, or the oid of a native sequence of PostgreSQL.
    pub incarnation: u64,
    /// Grows with resets and revocations of this incarnation; usually counts them, from 0.
    pub epoch: u64,
}

impl Identity {
    /// Creates the identity of a new sequence.
    pub fn fresh() -> Self {
        // Uses the operating system's randomness: fastrand seeds itself only with the uptime and the thread's
        // number, which two machines, or two copies of one, can share.
        let random = RandomState::new().hash_one(fastrand::u64(..));
        // 63 bits, so that every store can keep it in a signed integer; never 0.
        Self { incarnation: (random >> 1).max(1), epoch: 0 }
    }
}
