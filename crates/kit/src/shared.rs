//! One connection shared by all callers of a process.

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use idmill::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// A connection that is opened on first use and replaced when it becomes unusable.
///
/// Callers share one attempt to connect, and each waits until its own deadline. If each caller queued an
/// attempt, the last one could wait for the timeouts of all others. The attempt continues after a caller's
/// deadline.
#[derive(Debug)]
pub struct SharedConnection<C>(Mutex<Option<Attempt<C>>>);

type Attempt<C> = watch::Receiver<Option<Result<Arc<C>>>>;

impl<C> Default for SharedConnection<C> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<C: Send + Sync + 'static> SharedConnection<C> {
    /// Returns the current connection, usable or not.
    pub fn get(&self) -> Option<Arc<C>> {
        self.0.lock().as_ref()?.borrow().as_ref()?.as_ref().ok().cloned()
    }

    /// Returns the connection if it is `usable`, and otherwise joins or starts an attempt to connect.
    /// `connect` runs in its own task and must have a timeout.
    ///
    /// # Errors
    /// The error of `connect`; [`Unavailable`](ErrorKind::Unavailable) if it has not ended at the deadline.
    pub async fn open<F>(
        &self,
        deadline: Instant,
        usable: impl Fn(&C) -> bool,
        connect: impl FnOnce() -> F,
    ) -> Result<Arc<C>>
    where
        F: Future<Output = Result<C>> + Send + 'static,
    {
        let mut attempt = self.join(usable, connect);
        match timeout_at(deadline, attempt.wait_for(Option::is_some)).await {
            Ok(Ok(outcome)) => outcome.clone().expect("waited for"),
            // The task panicked, or was dropped with its runtime.
            Ok(Err(_)) => Err(Error::new(ErrorKind::Unavailable, "the attempt to connect was cancelled")),
            Err(_) => Err(Error::new(
                ErrorKind::Unavailable,
                "the connection was not established within the call's timeout",
            )),
        }
    }

    fn join<F>(&self, usable: impl Fn(&C) -> bool, connect: impl FnOnce() -> F) -> Attempt<C>
    where
        F: Future<Output = Result<C>> + Send + 'static,
    {
        let mut current = self.0.lock();
        if let Some(attempt) = &*current {
            // Check for the end first: if the attempt ends after this check, the next statement reads its
            // outcome.
            let ended = attempt.has_changed().is_err();
            let joined = match &*attempt.borrow() {
                None => !ended,
                Some(outcome) => outcome.as_ref().is_ok_and(|connection| usable(connection)),
            };
            if joined {
                return attempt.clone();
            }
        }
        let (outcome, attempt) = watch::channel(None);
        let connecting = connect();
        tokio::spawn(async move {
            let connected = connecting.await.map(Arc::new);
            outcome.send_replace(Some(connected));
        });
        current.insert(attempt).clone()
    }

    /// Drops an unusable connection, unless it was already replaced.
    pub fn discard(&self, connection: &Arc<C>) {
        let mut current = self.0.lock();
        let is_it = |attempt: &Attempt<C>| matches!(&*attempt.borrow(), Some(Ok(open)) if Arc::ptr_eq(open, connection));
        if current.as_ref().is_some_and(is_it) {
            *current = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    fn unavailable() -> Error {
        Error::new(ErrorKind::Unavailable, "silent")
    }

    async fn silent() -> Result<u32> {
        tokio::time::sleep(LONG).await;
        Err(unavailable())
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_one_attempt_until_their_deadlines() {
        let shared = SharedConnection::default();
        let began = Instant::now();
        let open = |after: u64| {
            let shared = &shared;
            async move {
                tokio::time::sleep(Duration::from_secs(after)).await;
                let failed = shared.open(Instant::now() + LONG, |_| true, silent).await.is_err();
                (failed, began.elapsed().as_secs())
            }
        };
        // The last caller arrived one second before the attempt ended.
        let outcomes = tokio::join!(open(0), open(5), open(9));
        assert_eq!(outcomes, ((true, 10), (true, 10), (true, 10)));
        let brief = shared.open(Instant::now() + LONG / 2, |_| true, silent).await;
        assert_eq!((brief.is_err(), began.elapsed().as_secs()), (true, 15));
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_outlives_the_caller_that_began_it() {
        let shared = SharedConnection::default();
        let slow = || async {
            tokio::time::sleep(LONG).await;
            Ok(7)
        };
        assert!(shared.open(Instant::now() + LONG / 2, |_| true, slow).await.is_err());
        let joined = shared.open(Instant::now() + LONG, |_| true, silent).await;
        assert_eq!(*joined.unwrap(), 7);
    }

    #[tokio::test]
    async fn unusable_connection_is_replaced() {
        let shared = SharedConnection::default();
        let deadline = Instant::now() + LONG;
        let first = shared.open(deadline, |_| true, || async { Ok(1) }).await.unwrap();
        let second = shared.open(deadline, |_| false, || async { Ok(2) }).await.unwrap();
        shared.discard(&first);
        assert_eq!(shared.get(), Some(second.clone()));
        shared.discard(&second);
        assert_eq!(shared.get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn error_tells_whether_the_attempt_failed_or_is_slow() {
        let shared = SharedConnection::default();
        let slow = shared.open(Instant::now() + LONG / 2, |_| true, silent).await.unwrap_err();
        let message = "the connection was not established within the call's timeout";
        assert_eq!((slow.kind(), slow.to_string().as_str()), (ErrorKind::Unavailable, message));
        assert_eq!(shared.get(), None, "the attempt has not ended");
        let failed = shared.open(Instant::now() + LONG, |_| true, silent).await.unwrap_err();
        assert_eq!(failed.to_string(), "silent");
        assert_eq!(shared.get(), None, "the attempt has failed");
        // An attempt that failed is not joined, and neither is one whose task has panicked.
        let panicking = || async { panic!("a bug in the driver") };
        let cancelled = shared.open(Instant::now() + LONG, |_| true, panicking).await.unwrap_err();
        let message = "the attempt to connect was cancelled";
        assert_eq!((cancelled.kind(), cancelled.to_string().as_str()), (ErrorKind::Unavailable, message));
        assert_eq!(*shared.open(Instant::now() + LONG, |_| true, || async { Ok(3) }).await.unwrap(), 3);
        let first = shared.get().unwrap();
        let joined = shared.open(Instant::now() + LONG, |_| true, || async { Ok(4) }).await.unwrap();
        assert!(Arc::ptr_eq(&first, &joined), "a usable connection is kept");
        shared.discard(&Arc::new(3));
        assert!(shared.get().is_some(), "an equal connection is not the same");
    }
}
