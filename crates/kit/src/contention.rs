//! The retry policy for lost races.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use idmill::{Error, ErrorKind, Result};

/// The retry policy for a sequence that others change between a caller's read and its write. Most retries are
/// immediate, because a pause would only make the last read older. After every few losses there is a random
/// pause with a growing limit, so that competing writers spread out. Retrying ends after a timeout.
///
/// ```
/// # use idmill_kit::Contention;
/// # async fn write() -> idmill::Result<bool> { Ok(true) }
/// # async fn demo() -> idmill::Result<()> {
/// let mut contest = Contention::new().begin();
/// while !write().await? {
///     contest.lost(None).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Contention {
    every: u32,
    least: Duration,
    most: Duration,
    timeout: Duration,
}

impl Default for Contention {
    fn default() -> Self {
        Self::new()
    }
}

impl Contention {
    /// Pauses after every eighth loss, at first up to 2 ms and finally up to 100 ms. Gives up after 30 s.
    pub const fn new() -> Self {
        Self {
            every: 8,
            least: Duration::from_millis(2),
            most: Duration::from_millis(100),
            timeout: Duration::from_secs(30),
        }
    }

    /// Sets the number of losses between two pauses, at least 1. Choose a small number if competing writers
    /// abort each other, or if each attempt costs money.
    #[must_use]
    pub const fn every(mut self, losses: u32) -> Self {
        self.every = if losses == 0 { 1 } else { losses };
        self
    }

    /// Sets the limit of the first pause, `least`, and of the longest, `most`.
    #[must_use]
    pub const fn pauses(mut self, least: Duration, most: Duration) -> Self {
        (self.least, self.most) = (least, most);
        self
    }

    /// Sets the timeout for all attempts together.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Retries until an attempt returns `Some`. `None` means that the race was lost and nothing was written.
    ///
    /// # Errors
    /// The errors of the attempt, and of [`Contest::lost`].
    pub async fn until<R, F>(self, mut attempt: impl FnMut() -> F) -> Result<R>
    where
        // Not an async closure: a future that awaits one cannot be spawned yet.
        F: Future<Output = Result<Option<R>>>,
    {
        let mut contest = self.begin();
        loop {
            if let Some(done) = attempt().await? {
                return Ok(done);
            }
            contest.lost(None).await?;
        }
    }

    /// Starts the timeout. Call it just before the first attempt.
    pub fn begin(self) -> Contest {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(self.least)
            .with_max_delay(self.most)
            .with_factor(2.0)
            .without_max_times();
        Contest { how: self, begun: Instant::now(), losses: 0, pauses: pauses.build() }
    }
}

/// The attempts at one change. Created by [`Contention::begin`].
#[derive(Debug)]
pub struct Contest {
    how: Contention,
    begun: Instant,
    losses: u32,
    pauses: ExponentialBackoff,
}

impl Contest {
    /// Waits until the next attempt is due. Call it only after a lost race in which nothing was written.
    /// Requires a tokio runtime with timers.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), with `cause`, after the [timeout](Contention::timeout).
    pub async fn lost(&mut self, cause: Option<Error>) -> Result<()> {
        if self.begun.elapsed() > self.how.timeout {
            return Err(self.over(cause));
        }
        self.losses = self.losses.wrapping_add(1);
        if self.losses.is_multiple_of(self.how.every) {
            let pause = self.pauses.next().unwrap_or(self.how.most);
            tokio::time::sleep(pause.mul_f64(fastrand::f64())).await;
        }
        Ok(())
    }

    fn over(&self, cause: Option<Error>) -> Error {
        let message = format!(
            "other processes kept changing the sequence for {:?}; use larger steps, so that it is written \
             less often",
            self.how.timeout
        );
        let error = Error::new(ErrorKind::Unavailable, message);
        match cause {
            Some(cause) => error.because(cause),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn losses_are_followed_by_pauses_and_by_an_end() {
        let begun = Instant::now();
        let mut contest = Contention::new().every(4).begin();
        for _ in 0..3 {
            contest.lost(None).await.unwrap();
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "at once at first");
        let mut losses = 3;
        let error = loop {
            let cause = Error::new(ErrorKind::Unavailable, "the version is another");
            match contest.lost(Some(cause)).await {
                Ok(()) => losses += 1,
                Err(error) => break error,
            }
        };
        assert!((30..31).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        // There is a pause after every fourth loss. The pauses grow to an average of 50 ms.
        assert!((1_000..10_000).contains(&losses), "{losses}");
        assert!(error.to_string().contains("for 30s; use larger steps"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn policy_has_the_documented_defaults_and_setters() {
        let Contention { every, least, most, timeout } = Contention::default();
        assert_eq!((every, least, most), (8, Duration::from_millis(2), Duration::from_millis(100)));
        assert_eq!(timeout, Duration::from_secs(30));
        let second = Duration::from_secs(1);
        let set = Contention::new().every(0).pauses(second, 2 * second).timeout(3 * second);
        assert_eq!((set.every, set.least, set.most, set.timeout), (1, second, 2 * second, 3 * second));
        assert_eq!(Contention::new().every(5).every, 5);
    }

    #[tokio::test]
    async fn limit_of_the_pauses_doubles_up_to_the_longest() {
        let limits: Vec<_> =
            Contention::new().begin().pauses.take(8).map(|limit| limit.as_millis()).collect();
        assert_eq!(limits, [2, 4, 8, 16, 32, 64, 100, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_at_the_timeout_is_the_last() {
        let second = Duration::from_secs(1);
        let mut contest = Contention::new().timeout(second).begin();
        tokio::time::advance(second).await;
        contest.lost(None).await.unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        let over = contest.lost(None).await.unwrap_err();
        assert_eq!(over.kind(), ErrorKind::Unavailable);
        let message = "other processes kept changing the sequence for 1s; use larger steps, so that it is written less often";
        assert_eq!(over.to_string(), message);
        assert!(std::error::Error::source(&over).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn until_retries_lost_races_and_returns_errors() {
        let mut attempts = 0;
        let done = Contention::new().until(|| {
            attempts += 1;
            let won = attempts == 20;
            async move { Ok(won.then_some("done")) }
        });
        assert_eq!(done.await.unwrap(), "done");
        assert_eq!(attempts, 20);
        let failed = Contention::new().until(|| async { Err::<Option<()>, _>(Error::invalid("bad")) });
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
