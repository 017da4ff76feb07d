//! Waits for states that tests can only poll. Each wait has a limit, so that it fails instead of hanging.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The usual limit of a wait, far above what a slow machine needs.
const LIMIT: Duration = Duration::from_secs(60);

/// Tries until an attempt succeeds. The error of an attempt is what it saw instead.
///
/// # Panics
/// After a minute of the real clock, with `what` and the last error.
pub async fn eventually<T, E: Debug>(what: &str, attempt: impl AsyncFnMut() -> Result<T, E>) -> T {
    eventually_within(LIMIT, what, attempt).await
}

/// Like [`eventually`], with another limit: for a wait that includes long timeouts.
pub async fn eventually_within<T, E: Debug>(
    limit: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let wait = Wait { limit, ..Wait::new(what) };
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(seen) => wait.again(&seen).await,
        }
    }
}

/// Like [`eventually`], for code that blocks its thread.
pub fn eventually_blocking<T, E: Debug>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let wait = Wait::new(what);
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(seen) => std::thread::sleep(wait.pause(&seen)),
        }
    }
}

/// Returns an error with `seen` unless the state holds.
pub fn holds<S>(state: bool, seen: S) -> Result<(), S> {
    if state { Ok(()) } else { Err(seen) }
}

/// The wait of a loop that cannot be a closure: a future with an async closure is often not `Send`.
#[derive(Debug)]
pub struct Wait<'a> {
    what: &'a str,
    limit: Duration,
    begun: Instant,
}

impl<'a> Wait<'a> {
    pub fn new(what: &'a str) -> Self {
        Self { what, limit: LIMIT, begun: Instant::now() }
    }

    /// Pauses after an attempt that saw `seen`.
    ///
    /// # Panics
    /// As [`eventually`].
    pub fn again(&self, seen: &dyn Debug) -> tokio::time::Sleep {
        tokio::time::sleep(self.pause(seen))
    }

    /// The pause before the next attempt, which grows with the wait.
    fn pause(&self, seen: &dyn Debug) -> Duration {
        let (waited, limit) = (self.begun.elapsed(), self.limit);
        assert!(waited < limit, "{}: not within {limit:?}; last seen: {seen:?}", self.what);
        (waited / 8).clamp(Duration::from_millis(1), Duration::from_millis(50))
    }
}
