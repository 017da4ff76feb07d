//! The size of a window in a cache, and the lifetime of the right to refill it. Pure decisions.
//!
//! If the cache loses a window, its ids are skipped. So a window holds about the ids drawn in a certain time,
//! up to a maximum. Each process can compute the size for its own refills, since each draw shows the progress
//! of *all* processes. To skip nothing at all, every id would need a durable write, which is a window of one
//! id.
//!
//! After a refill that did not reach the window, the next ones request only the ids that their callers need,
//! until one succeeds. So a window that never works costs only those ids, and not a full window for each
//! refill.

use std::time::Duration;

/// The largest first size of a new window.
const FIRST: u64 = 16;
/// The largest growth factor of the window per range.
const GROWTH: u64 = 4;
/// Draws within a shorter time are a burst, not a rate.
const BURST: Duration = Duration::from_millis(100);
/// The lifetime of a claim, as a multiple of the slowest recent refill.
const MARGIN: u32 = 2;
/// The longest lifetime of a claim, unless the owner sets a longer one.
const LONGEST_LIFE: Duration = Duration::from_secs(600);

/// The limits that the owner of a window sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of ids in the window.
    pub most: u64,
    /// Limits the window to the ids drawn in this time, if that is less; `None`: no such limit.
    pub lasts: Option<Duration>,
    /// The shortest lifetime of a claim.
    pub claim: Duration,
}

/// The observations of one process about one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// The end of the window at the last draw, the end of that draw, and its time.
    last: Option<(u64, u64, Duration)>,
    /// The ids drawn by all processes, and the seconds this took. Both decay.
    ids: f64,
    seconds: f64,
    /// The size of the window after its last refill, as far as known.
    size: u64,
    /// Refills since the last one known to be in the window.
    failed: u32,
    /// The duration of the slowest recent refill.
    slowest: Duration,
}

impl Pace {
    /// Records that a draw of this process ended at `next`, in a window that ends at `end`. `at` is a time of
    /// the caller's clock.
    pub fn drawn(&mut self, limits: &Limits, end: u64, next: u64, at: Duration) {
        // Ignore the first draw of a new window: an unknown number of ids was skipped.
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

    /// Records the approximate size that another process gave the window.
    pub fn found(&mut self, size: u64) {
        if size > 0 {
            self.size = size;
        }
    }

    /// Returns the size that the window should have for a caller that requests `count` ids: at least `count`.
    pub fn size(&self, limits: &Limits, count: u64) -> u64 {
        let most = limits.most.max(count);
        let Some(lasts) = limits.lasts else { return if self.failed > 0 { count } else { most } };
        if self.failed > 0 {
            return count;
        }
        let grown = self.size.saturating_mul(GROWTH).max(FIRST);
        if self.seconds <= 0.0 {
            // No rate is known: keep the last size, or a small one.
            return self.size.max(FIRST.min(most)).clamp(count, most);
        }
        // A short burst does not continue at the same rate.
        let drawn = self.ids * GROWTH as f64;
        let wanted = (self.ids / self.seconds.max(BURST.as_secs_f64()) * lasts.as_secs_f64()).min(drawn);
        // The cast saturates for large values.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let wanted = wanted.round() as u64;
        wanted.min(grown).clamp(count.max(1), most)
    }

    /// Returns how many ids to add to a window that has `left` ids left.
    pub fn more(&self, limits: &Limits, left: u64) -> u64 {
        let size = self.size(limits, 1);
        // Add some ids even if the rate has dropped.
        let some = left.min(size / 2).max(1);
        size.saturating_sub(left).max(some).min(limits.most.saturating_sub(left)).max(1)
    }

    /// Records the start of a refill. It counts as failed until it is known to be in the window.
    pub fn begins(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// Records that a refill is in the window, which now has `size` ids.
    pub fn installed(&mut self, size: u64) {
        self.failed = 0;
        self.size = size;
    }

    /// Records that a refill ended without a claim, so nothing was lost.
    pub fn was_refused(&mut self) {
        self.failed = self.failed.saturating_sub(1);
    }

    /// Records the duration of a refill since its claim, or the time until it was given up.
    pub fn took(&mut self, time: Duration) {
        self.slowest = time.max(self.slowest / 2);
    }

    /// Returns how long to wait for a refill in progress: twice the duration of a slow one.
    pub fn timeout(&self) -> Duration {
        self.slowest.saturating_mul(MARGIN).min(LONGEST_LIFE)
    }

    /// Returns the lifetime of the next claim: longer than its refill should take.
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

    /// Draws `rate` ids per second for a minute, from a window that is always large enough.
    fn steady(rate: u64) -> Pace {
        let mut pace = Pace::default();
        for n in 0..60 * rate.max(1) {
            pace.drawn(&LIMITS, u64::MAX, n, Duration::from_secs_f64(n as f64 / rate as f64));
            pace.found(LIMITS.most);
        }
        pace
    }

    #[test]
    fn window_size_follows_the_rate_up_to_its_limit() {
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
            // A burst: all draws within a millisecond.
            for n in 0..100 {
                pace.drawn(&LIMITS, range, n * 10, Duration::from_micros(range * 1_000 + n * 10));
            }
        }
        assert_eq!(sizes, [16, 64, 256, 1_000, 1_000]);
    }

    #[test]
    fn a_moment_is_not_taken_for_all_the_time() {
        let mut pace = Pace::default();
        // A burst of thirty ids in 100 ms is not a steady rate of 300 ids per second.
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
            // Each range is evicted after two draws; the next one starts 1,000 ids later.
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
