//! The scripts of the window on Redis as functions: see [`idmill_shared_cache::fenced`].

use idmill::IdRange;
use idmill_shared_cache::fenced::Refill;

/// The server's entry for a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kept<Fence> {
    /// A process has claimed the right to refill.
    Claim {
        /// The server's fence when the window was claimed.
        fence: Fence,
        /// The token of this claim, which no other claim has.
        token: u64,
    },
    /// The ids from `base + used` up to, but not including, `base + len`.
    Range {
        /// The server's fence when the range was installed.
        fence: Fence,
        /// The first id.
        base: u64,
        /// Number of ids handed out.
        used: u64,
        /// Number of ids.
        len: u64,
        /// The next range is prepared when at most this number of ids is left.
        mark: u64,
        /// The token of the process that prepares the next range.
        ahead: Option<u64>,
        /// The next range: its first id, its length, and its mark.
        next: Option<(u64, u64, u64)>,
    },
}

/// The outcome of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// These ids belong to the caller.
    Ids {
        /// The ids.
        range: IdRange,
        /// The first id of their range.
        base: u64,
        /// Number of ids left, in this range and the next.
        left: u64,
        /// Whether the caller may prepare the next range.
        low: bool,
    },
    /// The next id is above the caller's ceiling.
    Above,
    /// The caller now has the right to refill.
    Claimed,
    /// Another process has the right to refill.
    Busy,
}

/// Takes up to `count` ids, none above `ceiling`. If the window has no ids at this server and no other claim,
/// claims it with `token`.
pub fn draw<Fence: Clone + PartialEq>(
    kept: &mut Option<Kept<Fence>>,
    here: &Fence,
    count: u64,
    ceiling: u64,
    token: u64,
) -> Draw {
    go_on(kept, here);
    match kept {
        Some(Kept::Claim { fence, .. }) if fence == here => Draw::Busy,
        Some(Kept::Range { fence, used, len, ahead: Some(_), .. }) if fence == here && *used >= *len => {
            Draw::Busy
        }
        Some(Kept::Range { fence, base, used, len, mark, ahead, next }) if fence == here && *used < *len => {
            let first = *base + *used;
            let Some(room) = ceiling.checked_sub(first) else { return Draw::Above };
            let take = count.min(*len - *used).min(room.saturating_add(1));
            let Some(range) = IdRange::new(first, take) else { return Draw::Above };
            *used += take;
            let left = *len - *used + next.map_or(0, |(_, len, _)| len);
            let low = *mark > 0 && next.is_none() && ahead.is_none() && left <= *mark;
            if low {
                *ahead = Some(token);
            }
            Draw::Ids { range, base: *base, left, low }
        }
        _ => {
            *kept = Some(Kept::Claim { fence: here.clone(), token });
            Draw::Claimed
        }
    }
}

/// Moves to the next range if this one is used up.
fn go_on<Fence: Clone + PartialEq>(kept: &mut Option<Kept<Fence>>, here: &Fence) {
    if let Some(Kept::Range { fence, used, len, next: Some((base, next, mark)), .. }) = kept
        && fence == here
        && used >= len
    {
        let (base, len, mark) = (*base, *next, *mark);
        *kept = Some(Kept::Range { fence: here.clone(), base, used: 0, len, mark, ahead: None, next: None });
    }
}

/// Replaces the claim that has this token with the rest of a range, or appends the range to the one whose
/// refill was claimed with this token. Without such a claim, the new range is abandoned.
pub fn install<Fence: Clone + PartialEq>(
    kept: &mut Option<Kept<Fence>>,
    here: &Fence,
    token: u64,
    refill: &Refill,
) -> bool {
    let Refill { base, used, len, mark, .. } = *refill;
    match kept {
        Some(Kept::Claim { fence, token: held }) if fence == here && *held == token => {
            let fence = here.clone();
            *kept = Some(Kept::Range { fence, base, used, len, mark, ahead: None, next: None });
            true
        }
        Some(Kept::Range { fence, ahead, next, .. }) if fence == here && *ahead == Some(token) => {
            (*ahead, *next) = (None, Some((base, len, mark)));
            true
        }
        _ => false,
    }
}

/// Releases a claim, if it is still there.
pub fn release<Fence>(kept: &mut Option<Kept<Fence>>, token: u64) -> bool {
    match kept {
        Some(Kept::Claim { token: held, .. }) if *held == token => {
            *kept = None;
            true
        }
        Some(Kept::Range { ahead, .. }) if *ahead == Some(token) => {
            *ahead = None;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use idmill_shared_cache::fenced::{prepared, refill};

    use super::*;

    fn range(start: u64, len: u64) -> IdRange {
        IdRange::new(start, len).unwrap()
    }

    fn kept(fence: u64, base: u64, len: u64) -> Kept<u64> {
        Kept::Range { fence, base, used: 0, len, mark: 0, ahead: None, next: None }
    }

    /// Draws ids, and panics on any other outcome.
    fn ids(kept: &mut Option<Kept<u64>>, count: u64) -> (IdRange, bool) {
        match draw(kept, &1, count, u64::MAX, 9) {
            Draw::Ids { range, low, .. } => (range, low),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_range_is_drawn_from_until_it_is_used_up() {
        let mut kept = None;
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 7), Draw::Claimed);
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 8), Draw::Busy);
        let all = refill(range(11, 6), 2, u64::MAX);
        assert_eq!((all.own, all.used, all.len, all.mark), (range(11, 2), 2, 6, 2));
        let all = Refill { mark: 0, ..all };
        assert!(!install(&mut kept, &1, 8, &all), "another's claim");
        assert!(install(&mut kept, &1, 7, &all));
        assert!(!install(&mut kept, &1, 7, &all), "once");
        assert_eq!(ids(&mut kept, 3), (range(13, 3), false));
        assert_eq!(draw(&mut kept, &1, 3, 15, 9), Draw::Above);
        assert_eq!(ids(&mut kept, 3), (range(16, 1), false));
        assert_eq!(draw(&mut kept, &1, 3, u64::MAX, 9), Draw::Claimed);
        assert!(!release(&mut kept, 7) && release(&mut kept, 9));
    }

    #[test]
    fn one_process_prefetches_the_next_range() {
        let mut kept =
            Some(Kept::Range { fence: 1, base: 1, used: 0, len: 8, mark: 4, ahead: None, next: None });
        assert_eq!(ids(&mut kept, 3), (range(1, 3), false));
        assert_eq!(
            draw(&mut kept, &1, 1, 9, 7),
            Draw::Ids { range: range(4, 1), base: 1, left: 4, low: true }
        );
        assert_eq!(ids(&mut kept, 1), (range(5, 1), false), "another client does already");
        assert!(release(&mut kept, 7));
        assert_eq!(ids(&mut kept, 1), (range(6, 1), true), "the client that prepared it gave up");
        let next = prepared(range(21, 4), 2);
        assert!(!install(&mut kept, &1, 7, &next) && !install(&mut kept, &2, 9, &next));
        assert!(install(&mut kept, &1, 9, &next));
        assert!(!install(&mut kept, &1, 9, &next), "once");
        assert_eq!(ids(&mut kept, 5), (range(7, 2), false), "never ids of two ranges");
        assert_eq!(
            draw(&mut kept, &1, 1, 99, 5),
            Draw::Ids { range: range(21, 1), base: 21, left: 3, low: true }
        );
        assert!(!install(&mut kept, &1, 9, &next), "another range stands there");
        assert_eq!(ids(&mut kept, 5), (range(22, 3), false));
        assert_eq!(draw(&mut kept, &1, 1, 99, 6), Draw::Busy, "it is being prepared");
        assert!(release(&mut kept, 5));
        assert_eq!(draw(&mut kept, &1, 1, 99, 6), Draw::Claimed);
    }

    #[test]
    fn nothing_of_another_server_counts() {
        let next = prepared(range(21, 4), 2);
        for before in [kept(1, 1, 9), Kept::Claim { fence: 1, token: 7 }] {
            let mut kept = Some(before);
            assert_eq!(draw(&mut kept, &2, 1, u64::MAX, 8), Draw::Claimed);
            assert!(!install(&mut kept, &2, 7, &refill(range(1, 9), 1, u64::MAX)));
        }
        let mut claim = Some(Kept::Claim { fence: 1, token: 7 });
        assert!(!install(&mut claim, &2, 7, &refill(range(1, 9), 1, u64::MAX)));
        let mut used = Some(Kept::Range {
            fence: 1,
            base: 1,
            used: 9,
            len: 9,
            mark: 4,
            ahead: None,
            next: Some((31, 5, 1)),
        });
        assert_eq!(draw(&mut used, &2, 1, u64::MAX, 8), Draw::Claimed, "nor what follows");
        let mut low =
            Some(Kept::Range { fence: 1, base: 1, used: 5, len: 9, mark: 4, ahead: Some(7), next: None });
        assert!(!install(&mut low, &2, 7, &next));
    }

    #[test]
    fn the_largest_ids_are_ids_too() {
        let mut last = Some(kept(1, u64::MAX - 1, 2));
        assert_eq!(ids(&mut last, 5), (range(u64::MAX - 1, 2), false));
        let all = refill(range(5, 10), 10, 6);
        assert_eq!((all.own.len(), all.len), (2, 10), "up to its ceiling");
        assert_eq!(refill(range(7, 10), 10, 6).own.len(), 0);
    }
}
