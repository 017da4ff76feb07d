//! How many ids a window in a cache holds, and how long the right to refill it lasts: decisions, pure.
//!
//! When the cache forgets a window, its ids are skipped. So a window holds about as many ids as are drawn in
//! a certain time, and never more than a certain number. Every process decides this for its own refills, from
//! what it sees: each draw shows how far *all* have come. Skipping nothing at all would take a durable write
//! for each id, which is a window of one id.
//!
//! If a refill does not get into the window, for whatever reason, the following ones ask for no more than is
//! wanted at once, until one gets in. So a window that never serves costs the ids that its callers ask for,
//! not a window's worth for each.

use std::time::Duration;

/// The most ids of a window of which nothing is known yet.
const FIRST: u64 = 16;
/// By what factor the next range enlarges the window at most.
const GROWTH: u64 = 4;
/// Draws within less time than this are a burst, not a rate.
const BURST: Duration = Duration::from_millis(100);
/// A claim lives this many times as long as the slowest recent refill took.
const MARGIN: u32 = 2;
/// The longest life of a claim, unless its owner says otherwise.
const LONGEST_LIFE: Duration = Duration::from_secs(600);

/// The limits that the owner of a window sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most ids in the window.
    pub most: u64,
    /// No more ids than are drawn in this time, if that is less; `None`: no such limit.
    pub lasts: Option<Duration>,
    /// The shortest life of a claim.
    pub claim: Duration,
}

/// What a process has seen of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// The end of the window at the last draw, where that draw ended, and when.
    last: Option<(u64, u64, Duration)>,
    /// How far all draws advanced it, and in how many seconds; both fade.
    ids: f64,
    seconds: f64,
    /// How large the window was at its last refill, as far as is known.
    size: u64,
    /// Refills that are not known to be in the window, since the last one that is.
    failed: u32,
    /// How long refills took recently.
    slowest: Duration,
}

impl Pace {
    /// Records that a draw of this process ended at `next`, in a window that ends at `end`, at this time of a
    /// clock of its own.
    pub fn drawn(&mut self, limits: &Limits, end: u64, next: u64, at: Duration) {
        // From one window to another nobody knows what was skipped.
        if let Some((_, before, since)) = self.last.filter(|(known, ..)| *known == end) {
            self.ids += next.saturating_sub(before) as f64;
            self.seconds += at.saturating_sub(since).as_secs_f64();
            let most = limits.lasts.unwrap_or(BURST).max(BURST).as_secs_f64();
            if self.seconds > most {
                self.ids *= most / self.seconds;
                self.seconds = most;
            }
        }
        self.last = Some((end, next, at));
    }

    /// Records that another process made the window about this large.
    pub fn found(&mut self, size: u64) {
        if size > 0 {
            self.size = size;
        }
    }

    /// Returns how many ids the window should have now, for a caller that wants `count` of them: at least
    /// `count`.
    pub fn size(&self, limits: &Limits, count: u64) -> u64 {
        let most = limits.most.max(count);
        let Some(lasts) = limits.lasts else { return if self.failed > 0 { count } else { most } };
        if self.failed > 0 {
            return count;
        }
        let grown = self.size.saturating_mul(GROWTH).max(FIRST);
        if self.seconds <= 0.0 {
            // Not seen at all: as it was, or small.
            return self.size.max(FIRST.min(most)).clamp(count, most);
        }
        // What was drawn in a moment is not drawn all the time.
        let drawn = self.ids * GROWTH as f64;
        let wanted = (self.ids / self.seconds.max(BURST.as_secs_f64()) * lasts.as_secs_f64()).min(drawn);
        // A cast of what is too large saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let wanted = wanted.round() as u64;
        wanted.min(grown).clamp(count.max(1), most)
    }

    /// Returns how many ids to add to a window that has this many left, before it is empty.
    pub fn more(&self, limits: &Limits, left: u64) -> u64 {
        let size = self.size(limits, 1);
        // Some, also where less is drawn than was.
        let some = left.min(size / 2).max(1);
        size.saturating_sub(left).max(some).min(limits.most.saturating_sub(left)).max(1)
    }

    /// Records that a refill begins. It counts as not in the window until it is known to be.
    pub fn begins(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// Records that a refill is in the window, which now has `size` ids.
    pub fn installed(&mut self, size: u64) {
        self.failed = 0;
        self.size = size;
    }

    /// Records that a refill ended without claiming anything: nothing is lost by it.
    pub fn was_refused(&mut self) {
        self.failed = self.failed.saturating_sub(1);
    }

    /// Records how long a refill took, from its claim on, or after how long it was given up.
    pub fn took(&mut self, time: Duration) {
        self.slowest = time.max(self.slowest / 2);
    }

    /// Returns how long to wait for a refill that is under way: as long as a slow one takes.
    pub fn patience(&self) -> Duration {
        self.slowest.saturating_mul(MARGIN).min(LONGEST_LIFE)
    }

    /// Returns how long the next claim lives: longer than its refill takes, as far as is known.
    pub fn life(&self, limits: &Limits) -> Duration {
        self.slowest.saturating_mul(MARGIN).min(LONGEST_LIFE).max(limits.claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits =
        Limits { most: 1_000, lasts: Some(Duration::from_secs(5)), claim: Duration::from_secs(5) };

    /// So many ids a second for a minute, in a window that is always large enough.
    fn steady(rate: u64) -> Pace {
        let mut pace = Pace::default();
        for n in 0..60 * rate.max(1) {
            pace.drawn(&LIMITS, u64::MAX, n, Duration::from_secs_f64(n as f64 / rate as f64));
            pace.found(LIMITS.most);
        }
        pace
    }

    #[test]
    fn a_window_has_what_is_drawn_in_a_time_and_never_more_than_it_may() {
        for (rate, size) in [(1, 5), (10, 50), (100, 500), (10_000, 1_000)] {
            assert_eq!(steady(rate).size(&LIMITS, 1), size, "{rate} ids a second");
        }
        assert_eq!(steady(10).size(&LIMITS, 2_000), 2_000, "a caller who wants more gets it");
        assert_eq!(Pace::default().size(&Limits { lasts: None, ..LIMITS }, 1), 1_000, "always as large");
    }

    #[test]
    fn it_begins_small_and_grows_step_by_step() {
        let mut pace = Pace::default();
        let mut sizes = Vec::new();
        for range in 1..=5 {
            sizes.push(pace.size(&LIMITS, 1));
            pace.begins();
            pace.installed(sizes[sizes.len() - 1]);
            // A burst: all of it in a millisecond.
            for n in 0..100 {
                pace.drawn(&LIMITS, range, n * 10, Duration::from_micros(range * 1_000 + n * 10));
            }
        }
        assert_eq!(sizes, [16, 64, 256, 1_000, 1_000]);
    }

    #[test]
    fn a_moment_is_not_taken_for_all_the_time() {
        let mut pace = Pace::default();
        // Thirty ids in a tenth of a second, after nothing: no 1,000 in five seconds.
        for n in 0..=30 {
            pace.drawn(&LIMITS, u64::MAX, n, Duration::from_secs_f64(n as f64 / 300.0));
            pace.found(LIMITS.most);
        }
        assert_eq!(pace.size(&LIMITS, 1), 120);
    }

    #[test]
    fn what_was_skipped_is_no_rate() {
        let mut pace = steady(10);
        for n in 0..100 {
            let at = Duration::from_millis(60_000 + 200 * n);
            // Evicted every time: two draws of each range, 1,000 ids apart from the next.
            pace.drawn(&LIMITS, n / 2, n / 2 * 1_000 + n % 2 * 2, at);
        }
        assert_eq!(pace.size(&LIMITS, 1), 50);
    }

    #[test]
    fn a_refill_that_did_not_get_in_is_followed_by_small_ones() {
        let mut pace = steady(100);
        pace.begins();
        assert_eq!((pace.size(&LIMITS, 1), pace.size(&LIMITS, 7)), (1, 7));
        pace.begins();
        pace.was_refused();
        assert_eq!(pace.size(&LIMITS, 1), 1, "the first is still not known to be in");
        pace.installed(500);
        assert_eq!(pace.size(&LIMITS, 1), 500);
    }

    #[test]
    fn a_claim_lives_longer_than_a_slow_store_takes() {
        let mut pace = Pace::default();
        assert_eq!(pace.life(&LIMITS), Duration::from_secs(5));
        pace.took(Duration::from_secs(7));
        assert_eq!(pace.life(&LIMITS), Duration::from_secs(14));
        pace.took(Duration::from_secs(1));
        assert_eq!(pace.life(&LIMITS), Duration::from_secs(7));
        pace.took(Duration::MAX);
        assert_eq!(pace.life(&LIMITS), LONGEST_LIFE);
    }

    proptest! {
        #[test]
        fn no_size_is_beyond_its_limits(
            draws in prop::collection::vec((0..3_u64, any::<u64>(), any::<u32>()), 0..20),
            most in 1..1_u64 << 20, count in 1..1_u64 << 20, lasts in prop::option::of(0..10_000_u64),
            size in any::<u64>(),
        ) {
            let limits = Limits { most, lasts: lasts.map(Duration::from_millis), ..LIMITS };
            let mut pace = Pace::default();
            pace.found(size);
            for (end, next, at) in draws {
                pace.drawn(&limits, end, next, Duration::from_micros(at.into()));
                prop_assert!((count..=most.max(count)).contains(&pace.size(&limits, count)));
            }
        }
    }
}
