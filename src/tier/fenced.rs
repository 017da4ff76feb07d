//! The decisions of a window that is kept by scripts on a server which may be replaced by a copy of itself; pure.
//!
//! On Redis these are the scripts in `src/tier/redis/scripts`: that they decide as these functions do is tested on the server, and
//! that no id repeats when everybody decides so is explored by a model.
//!
//! What is kept for a sequence is a range and how much of it is used, under the [fence](Kept::Range) of the server that it
//! was put on: which process it is, and which history of writes it is the head of. A replica that is promoted, a master
//! that becomes one again, and a server that was started over a file of some time ago may all have *old* numbers, whose
//! ids were handed out. Each has another fence than the numbers, and they are void.
//!
//! 1. A [`draw`] takes from the range; or claims the right to refill, with a token of its own, where there is none that counts.
//!    Whoever comes then finds it claimed, and waits. A claim expires by itself.
//! 2. The claimant reserves a range from the store behind, after it claimed and never before.
//! 3. It [`install`]s what it does not need itself, if its claim still stands *and* the fence is the one that it was made under.

use crate::range::Range;

/// The most ids that are in a window.
pub const MAX_LEN: u64 = 1 << 20;

/// What the server keeps for a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kept<Fence> {
    /// Somebody may refill.
    Claim {
        /// Of the server, when it was claimed.
        fence: Fence,
        /// Of this claim alone.
        token: u64,
    },
    /// The ids from `base + used` on, before `base + len`.
    Range {
        /// Of the server, when it was installed.
        fence: Fence,
        /// The first id.
        base: u64,
        /// How many are handed out.
        used: u64,
        /// How many there are.
        len: u64,
    },
}

/// What comes of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// These ids are the caller's.
    Ids(Range),
    /// The next id is above the caller's ceiling.
    Above,
    /// The caller may refill.
    Claimed,
    /// Somebody else may.
    Busy,
}

/// Takes up to `count` ids, none above `ceiling`; or claims the window with `token`, where nothing in it counts at this server.
pub fn draw<Fence: Clone + PartialEq>(
    kept: &mut Option<Kept<Fence>>,
    here: &Fence,
    count: u64,
    ceiling: u64,
    token: u64,
) -> Draw {
    match kept {
        Some(Kept::Claim { fence, .. }) if fence == here => Draw::Busy,
        Some(Kept::Range { fence, base, used, len }) if fence == here && *used < *len => {
            let first = *base + *used;
            let Some(room) = ceiling.checked_sub(first) else { return Draw::Above };
            let take = count.min(*len - *used).min(room.saturating_add(1));
            *used += take;
            Range::new(first, take).map_or(Draw::Above, Draw::Ids)
        }
        _ => {
            *kept = Some(Kept::Claim { fence: here.clone(), token });
            Draw::Claimed
        }
    }
}

/// Puts what is left of a range in the place of the claim with this token, if it still stands; else the range is abandoned.
pub fn install<Fence: Clone + PartialEq>(
    kept: &mut Option<Kept<Fence>>,
    here: &Fence,
    token: u64,
    refill: &Refill,
) -> bool {
    let stands = *kept == Some(Kept::Claim { fence: here.clone(), token });
    if stands {
        let Refill { base, used, len, .. } = *refill;
        *kept = Some(Kept::Range { fence: here.clone(), base, used, len });
    }
    stands
}

/// Gives a claim back, if it still stands.
pub fn release<Fence>(kept: &mut Option<Kept<Fence>>, token: u64) -> bool {
    let stands = matches!(kept, Some(Kept::Claim { token: held, .. }) if *held == token);
    if stands {
        *kept = None;
    }
    stands
}

/// What becomes of a range that was reserved for a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The first ids, for whoever reserved it, once it is installed.
    pub own: Range,
    /// The first id of the range.
    pub base: u64,
    /// How many ids are its own.
    pub used: u64,
    /// How many there are.
    pub len: u64,
}

/// Splits a range that was reserved for a draw of `count` ids, none above `ceiling`. Of more than [`MAX_LEN`] ids the rest is lost.
pub fn refill(range: Range, count: u64, ceiling: u64) -> Refill {
    let (base, len) = (range.start(), range.len().min(MAX_LEN));
    let room = ceiling.checked_sub(base).map_or(0, |room| room.saturating_add(1));
    let mut rest = range;
    let own = rest.take_front(count.max(1).min(len).min(room));
    Refill { own, base, used: own.len(), len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_drawn_from_until_it_is_used_up() {
        let mut kept = None;
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 7), Draw::Claimed);
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 8), Draw::Busy);
        let all = refill(Range::new(11, 6).unwrap(), 2, u64::MAX);
        assert_eq!((all.own, all.used, all.len), (Range::new(11, 2).unwrap(), 2, 6));
        assert!(!install(&mut kept, &1, 8, &all), "another's claim");
        assert!(install(&mut kept, &1, 7, &all));
        assert!(!install(&mut kept, &1, 7, &all), "once");
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 9), Draw::Ids(Range::new(13, 3).unwrap()));
        assert_eq!(draw(&mut kept, &1, 3, 15, 9), Draw::Above);
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 9), Draw::Ids(Range::new(16, 1).unwrap()));
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 9), Draw::Claimed);
        assert!(!release(&mut kept, 7) && release(&mut kept, 9));
    }

    #[test]
    fn nothing_of_another_server_counts() {
        let range = Kept::Range { fence: 1, base: 1, used: 0, len: 9 };
        for mut kept in [Some(range), Some(Kept::Claim { fence: 1, token: 7 })] {
            assert_eq!(draw(&mut kept, &2, 1, u64::MAX, 8), Draw::Claimed);
            assert!(!install(&mut kept, &2, 7, &refill(Range::new(1, 9).unwrap(), 1, u64::MAX)));
        }
        let mut kept = Some(Kept::Claim { fence: 1, token: 7 });
        assert!(!install(&mut kept, &2, 7, &refill(Range::new(1, 9).unwrap(), 1, u64::MAX)));
    }

    #[test]
    fn the_largest_ids_are_ids_too() {
        let mut kept = Some(Kept::Range { fence: 1, base: u64::MAX - 1, used: 0, len: 2 });
        assert_eq!(draw(&mut kept, &1, 5, u64::MAX, 1), Draw::Ids(Range::new(u64::MAX - 1, 2).unwrap()));
        let all = refill(Range::new(5, 10).unwrap(), 10, 6);
        assert_eq!((all.own.len(), all.len), (2, 10), "up to its ceiling");
        assert_eq!(refill(Range::new(7, 10).unwrap(), 10, 6).own.len(), 0);
    }
}
