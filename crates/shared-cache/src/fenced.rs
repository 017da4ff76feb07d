//! The decisions of a window that scripts maintain on a server, which a copy (such as a promoted replica) may
//! replace. The functions are pure.
//!
//! On Redis, the scripts are in `stores/redis/src/window/scripts`. `idmill-testing` has them as functions.
//! Tests on the server check that the scripts and the functions agree; a model checks that no id repeats with
//! these functions.
//!
//! The entry of a sequence has a range and the number of used ids, under the *fence* of the server: its
//! process and its history of writes. A promoted replica, a master that becomes one again, and a server
//! started from an old file may all have *old* numbers, whose ids were handed out. The fence of such a server
//! differs from that of the numbers, so the numbers are void.
//!
//! 1. A draw takes from the range. If there is no valid range, it claims the right to refill, with its own
//!    token. Other draws then find the window claimed, and wait. A claim expires.
//! 2. The claimant reserves a range from the store. It always claims before it reserves.
//! 3. The claimant installs the ids that it does not need, if its claim is still valid *and* the fence has
//!    not changed since the claim.
//! 4. The first draw that leaves at most [`Refill::mark`] ids claims the right to prepare the next range. Its
//!    process installs the next range *behind* the range that the draw used, if that range is still in place.
//!    After the first range is used up, a draw continues in the next, or waits for it. If a draw waits, the
//!    whole entry expires like a claim, because the process that prepares the next range may have stopped.

use idmill::IdRange;

/// The maximum number of ids in a window.
pub const MAX_LEN: u64 = 1 << 20;

/// The use of a range that was reserved for a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The first ids, for the process that reserved the range. Valid after the install.
    pub own: IdRange,
    /// The first id of the range.
    pub base: u64,
    /// The number of ids that are `own`.
    pub used: u64,
    /// The number of ids in the range.
    pub len: u64,
    /// The next range is prepared when this many ids or fewer are left.
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

/// Creates the refill for a range that follows one with `left` ids left. Ids beyond the first [`MAX_LEN`] are
/// lost.
pub fn prepared(range: IdRange, left: u64) -> Refill {
    let (mut rest, len) = (range, range.len().min(MAX_LEN));
    Refill { own: rest.take_front(0), base: range.start(), used: 0, len, mark: left.saturating_add(len) / 2 }
}
