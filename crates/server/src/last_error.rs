//! Caches permanent errors of sequences that could not be opened. For open sequences, the engine does this.
//!
//! Clients may draw thousands of times a second with a mistyped name. The sequence may be created at any
//! time, so an error is cached only briefly: 100 ms, doubling to 5 s while it persists.

use std::collections::HashMap;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result, SequenceName};
use parking_lot::Mutex;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum number of names with a cached error.
const MOST: usize = 10_000;

/// The last permanent error of one sequence.
#[derive(Debug)]
pub(crate) struct LastError {
    error: Error,
    wait: Duration,
    until: Instant,
}

impl LastError {
    fn after(before: Option<&Self>, error: Error) -> Self {
        let now = Instant::now();
        let before = before.filter(|before| now < before.until + LONGEST);
        let wait = before.map_or(FIRST, |before| (before.wait * 2).min(LONGEST));
        Self { error, wait, until: now + wait }
    }

    /// Returns the error while it is cached.
    fn check(&self) -> Result<()> {
        if Instant::now() < self.until { Err(self.error.clone()) } else { Ok(()) }
    }
}

/// The last errors of sequences that could not be opened, by name.
#[derive(Debug, Default)]
pub(crate) struct Unopened(Mutex<HashMap<SequenceName, LastError>>);

impl Unopened {
    /// Checks the last error of this name.
    ///
    /// # Errors
    /// The last error, while it is cached.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        self.0.lock().get(name).map_or(Ok(()), LastError::check)
    }

    pub(crate) fn note(&self, name: &SequenceName, error: &Error) {
        if !stays(error) {
            return;
        }
        let mut all = self.0.lock();
        if all.len() >= MOST && !all.contains_key(name) {
            let now = Instant::now();
            all.retain(|_, last| now < last.until);
            if all.len() >= MOST {
                all.clear();
            }
        }
        let last = LastError::after(all.get(name), error.clone());
        all.insert(name.clone(), last);
    }

    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }
}

/// Returns whether the next attempt would fail too. An exhausted sequence can be opened.
fn stays(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::StoreViolation
            | ErrorKind::Denied
            | ErrorKind::Conflict
            | ErrorKind::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn persistent_error_is_rechecked_at_growing_intervals() {
        let (all, name, error) =
            (Unopened::default(), "s".parse().unwrap(), Error::from(ErrorKind::NotFound));
        let (mut asked, begun) = (0, Instant::now());
        while begun.elapsed() < Duration::from_secs(60) {
            if all.check("s").is_ok() {
                asked += 1;
                all.note(&name, &error);
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!((15..20).contains(&asked), "asked {asked} times in a minute");
        all.forget("s");
        assert!(all.check("s").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn error_of_another_name_does_not_shorten_the_wait() {
        let (all, error) = (Unopened::default(), Error::from(ErrorKind::NotFound));
        all.note(&"s".parse().unwrap(), &error);
        tokio::time::advance(FIRST).await;
        all.note(&"other".parse().unwrap(), &error);
        all.note(&"s".parse().unwrap(), &error);
        tokio::time::advance(FIRST).await;
        assert!(all.check("s").is_err() && all.check("other").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn unopened_names_are_bounded() {
        let (all, error) = (Unopened::default(), Error::from(ErrorKind::NotFound));
        for at in 0..3 * MOST {
            all.note(&format!("s{at}").parse().unwrap(), &error);
        }
        assert!(all.0.lock().len() <= MOST);
        all.note(&"transient".parse().unwrap(), &ErrorKind::Unavailable.into());
        assert!(all.check("transient").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_errors_make_room_before_others() {
        let (all, error) = (Unopened::default(), Error::from(ErrorKind::NotFound));
        all.note(&"kept".parse().unwrap(), &error);
        all.note(&"kept".parse().unwrap(), &error);
        for at in 1..MOST {
            all.note(&format!("s{at}").parse().unwrap(), &error);
        }
        tokio::time::advance(FIRST).await;
        assert!(all.check("s1").is_ok() && all.check("kept").is_err(), "only the second wait is longer");
        all.note(&"new".parse().unwrap(), &error);
        assert!(all.check("kept").is_err() && all.check("new").is_err());
        assert_eq!(all.0.lock().len(), 2);
    }
}
