//! The last failure, and the time of the next attempt.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::error::{Error, Status};
use crate::state::time::Time;

/// `None` from a valid grant until a reserve fails or the sequence ends. Boxed, since most sequences usually
/// have no failure.
pub(super) struct Retry(Option<Box<Failed>>);

struct Failed {
    error: Error,
    /// The delays between attempts, while they fail.
    delays: ExponentialBackoff,
    at: Option<Time>,
    /// Whether the last two attempts failed permanently.
    is_lasting: bool,
}

impl Retry {
    pub(super) fn new() -> Self {
        Self(None)
    }

    /// Returns the error of the last attempt.
    pub(super) fn error(&self) -> Option<&Error> {
        self.0.as_ref().map(|failed| &failed.error)
    }

    /// Whether the waiting callers failed with the last error, instead of waiting further.
    pub(super) fn was_reported(&self) -> bool {
        self.error().is_some_and(Error::refuses_waiters)
    }

    /// Returns the last error if two attempts in a row failed permanently, and it is too early for the next
    /// one: callers get this error until then. After one such failure, the next caller tries again, since the
    /// store may have been repaired.
    pub(super) fn refusal(&self, now: Time) -> Option<&Error> {
        self.error().filter(|_| self.is_lasting() && self.at().is_some_and(|at| now < at))
    }

    /// Whether the last two attempts failed permanently.
    pub(super) fn is_lasting(&self) -> bool {
        self.0.as_ref().is_some_and(|failed| failed.is_lasting)
    }

    /// Returns when the next attempt may be made; `None` if immediately.
    pub(super) fn at(&self) -> Option<Time> {
        self.0.as_ref()?.at
    }

    /// Notes a failed attempt. `seed` makes the delays deterministic; only that of the first failure is used.
    pub(super) fn note(&mut self, error: Error, seed: Option<u64>) {
        if let Some(failed) = &mut self.0 {
            failed.is_lasting = is_permanent(&failed.error) && is_permanent(&error);
            failed.error = error;
        } else {
            let delays = delays(seed);
            self.0 = Some(Box::new(Failed { error, delays, at: None, is_lasting: false }));
        }
    }

    /// Delays the next attempt; the delays grow until an attempt succeeds.
    pub(super) fn hold(&mut self, now: Time) {
        if let Some(failed) = &mut self.0 {
            failed.at = failed.delays.next().map(|delay| now.saturating_add(delay));
        }
    }

    /// Sets the time of the next attempt.
    pub(super) fn set(&mut self, at: Option<Time>) {
        if let Some(failed) = &mut self.0 {
            failed.at = at;
        }
    }

    /// Clears the failure after a grant.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

fn is_permanent(error: &Error) -> bool {
    error.status() == Status::Permanent
}

/// Delays of 10 ms, doubling up to 5 s, each with a random jitter of up to its own length; the number of
/// delays is unlimited.
fn delays(seed: Option<u64>) -> ExponentialBackoff {
    let backoff = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_secs(5))
        .with_factor(2.0)
        .with_jitter()
        .without_max_times();
    seed.map_or(backoff, |seed| backoff.with_jitter_seed(seed)).build()
}
