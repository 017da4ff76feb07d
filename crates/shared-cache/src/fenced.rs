//! The decisions of a window that scripts keep on a server which may be replaced by a copy of itself; pure.
//!
//! On Redis these are the scripts in `stores/redis/src/window/scripts`. `idmill-testing` has them as
//! functions: tests on the server check that the scripts decide as these do; a model explores that no id
//! repeats when everybody decides so.
//!
//! A sequence's entry is a range and how much of it is used, under the fence of the server
//! that it was put on: which process that is, and which history of writes it is the head of. A promoted
//! replica, a master that becomes one again, and a server that is started over a file of some time ago may
//! all have *old* numbers, whose ids were handed out. The fence of each differs from that of the numbers, so
//! the numbers are void.
//!
//! 1. A draw takes from the range. If there is no valid range, it claims the right to refill, with a
//!    token of its own. Other draws then find the window claimed, and wait. A claim expires by itself.
//! 2. The claimant reserves a range from the store behind, after it claimed and never before.
//! 3. It installs what it does not need itself, if its claim still stands *and* the fence is the one
//!    under which the claim was made.
//! 4. The first draw that leaves no more than the range's mark claims the right to prepare the next range,
//!    and installs that range *behind* the one it saw, if that one still stands there. When the first range
//!    is used up, a draw goes on in the next, or waits for it. The whole entry then expires as a claim does,
//!    since whoever prepares the next range may be gone.

use idmill::IdRange;

/// The most ids in a window.
pub const MAX_LEN: u64 = 1 << 20;

/// What to do with a range that was reserved for a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The first ids, for the process that reserved the range, once it is installed.
    pub own: IdRange,
    /// The first id of the range.
    pub base: u64,
    /// How many of its ids are `own`.
    pub used: u64,
    /// How many ids it has.
    pub len: u64,
    /// When no more than this many are left, the next range is prepared.
    pub mark: u64,
}

/// Splits a range that was reserved for a draw of `count` ids, none above `ceiling`. Ids beyond the first
/// [`MAX_LEN`] are lost.
pub fn refill(range: IdRange, count: u64, ceiling: u64) -> Refill {
    let (base, len) = (range.start(), range.len().min(MAX_LEN));
    let room = ceiling.checked_sub(base).map_or(0, |room| room.saturating_add(1));
    let mut rest = range;
    let own = rest.take_front(count.max(1).min(len).min(room));
    Refill { own, base, used: own.len(), len, mark: (len - own.len()) / 2 }
}

/// Makes the refill for a range that was reserved to follow one with this many ids left. Ids beyond the first
/// [`MAX_LEN`] are lost.
pub fn prepared(range: IdRange, left: u64) -> Refill {
    let (mut rest, len) = (range, range.len().min(MAX_LEN));
    Refill { own: rest.take_front(0), base: range.start(), used: 0, len, mark: left.saturating_add(len) / 2 }
}
