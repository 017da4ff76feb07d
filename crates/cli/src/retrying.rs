//! Retries while a store is busy or unreachable: one rule for opening it and for every call of a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill::store::{Bounds, Change, Identity, Listing, Page, SequenceInfo, Store, StoreFuture};
use idmill::{Error, ErrorKind, Result, SequenceName, Status};
use tokio::time::{Instant, sleep};

/// The first pause. Each further pause is twice as long, up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);
/// A time that is longer than any command runs.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Returns the end of this time, or an instant far in the future on overflow.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

/// Returns the time until `end`, or zero.
pub(crate) fn until(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// Returns the error for a store that did not answer within `limit`.
pub(crate) fn late(limit: Duration) -> Error {
    Error::new(ErrorKind::Deadline, format!("the store did not answer within {limit:?}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A call that has the same effect twice as once: a read, or opening a store.
    Idempotent,
    /// A change. If its outcome is unknown, it may have been applied: a repetition could make it twice, or
    /// report that it was rejected.
    Change,
}

impl Effect {
    /// Returns whether a call with this effect can be repeated after the error.
    fn repeats_after(self, error: &Error) -> bool {
        match error.status() {
            Status::Transient => true,
            Status::Unknown => self == Self::Idempotent,
            _ => false,
        }
    }
}

/// Repeats a call until it succeeds, the error does not permit a repetition, or `end` has passed. `report`
/// receives the first error that is followed by a repetition. If the last attempt ends only because the time
/// is over, the error before it is returned, which has the cause.
pub(crate) async fn retry<T, F: Future<Output = Result<T>>>(
    effect: Effect,
    end: Instant,
    report: impl FnOnce(&Error),
    mut call: impl FnMut() -> F,
) -> Result<T> {
    let (mut longest, mut report, mut last) = (SHORTEST, Some(report), None);
    loop {
        let error = match call().await {
            Err(error) if effect.repeats_after(&error) => error,
            outcome => return outcome,
        };
        // Random pauses spread the attempts of many processes that start together.
        let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
        let left = until(end);
        if pause >= left {
            return Err(if left.is_zero() { last.unwrap_or(error) } else { error });
        }
        if let Some(report) = report.take() {
            report(&error);
        }
        last = Some(error);
        sleep(pause).await;
        longest = (longest * 2).min(LONGEST);
    }
}

/// A store whose calls are retried, except reserves: the allocator retries these itself.
#[derive(Debug)]
pub(crate) struct Retrying {
    store: Arc<dyn Store>,
    /// How long a call is retried.
    within: Duration,
    /// Until when the first call is retried. It shares its time with the connection.
    first_until: Instant,
    has_called: AtomicBool,
}

impl Retrying {
    pub(crate) fn of(store: Arc<dyn Store>, within: Duration, first_until: Instant) -> Arc<dyn Store> {
        Arc::new(Self { store, within, first_until, has_called: AtomicBool::new(false) })
    }

    /// Returns until when the next call is retried.
    fn end(&self) -> Instant {
        if self.has_called.swap(true, Ordering::Relaxed) { after(self.within) } else { self.first_until }
    }

    fn retry<'a, T: Send + 'a>(
        &'a self,
        effect: Effect,
        call: impl FnMut() -> StoreFuture<'a, Result<T>> + Send + 'a,
    ) -> StoreFuture<'a, Result<T>> {
        let report = |error: &Error| tracing::warn!("the store is unreachable; retrying: {error}");
        Box::pin(retry(effect, self.end(), report, call))
    }
}

impl Store for Retrying {
    idmill::store_calls!(|this| this.store =>
        capabilities reserve reserve_many give_back inspect_many server record swap_record list_records);

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.retry(Effect::Change, move || self.store.create(name, bounds))
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        self.retry(Effect::Idempotent, move || self.store.inspect(name))
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        self.retry(Effect::Idempotent, move || self.store.list(page))
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.retry(Effect::Change, move || self.store.set(name, change))
    }

    fn remove<'a>(
        &'a self,
        name: &'a SequenceName,
        expected: Option<Identity>,
    ) -> StoreFuture<'a, Result<bool>> {
        self.retry(Effect::Change, move || self.store.remove(name, expected))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use idmill_testing::faulty::{Faults, FaultyStore};

    use super::*;

    #[test]
    fn overflowing_time_ends_in_years() {
        let years = until(after(Duration::MAX)).as_secs() / (365 * 86_400);
        assert!((9..=10).contains(&years), "{years}");
    }

    /// Fails `times` times with an error of this kind, and returns the outcome and the number of calls.
    async fn tried(effect: Effect, kind: ErrorKind, times: u32) -> (Result<u32>, u32) {
        let calls = Cell::new(0);
        let call = async || {
            calls.set(calls.get() + 1);
            if calls.get() > times { Ok(calls.get()) } else { Err(Error::from(kind)) }
        };
        let outcome = retry(effect, after(Duration::from_secs(30)), |_| {}, call).await;
        (outcome, calls.get())
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried_until_the_end() {
        for effect in [Effect::Idempotent, Effect::Change] {
            let (outcome, calls) = tried(effect, ErrorKind::Unavailable, 20).await;
            assert_eq!((outcome.unwrap(), calls), (21, 21));
            let begun = Instant::now();
            let (outcome, calls) = tried(effect, ErrorKind::Unavailable, u32::MAX).await;
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
            assert!(
                calls > 30 && begun.elapsed() > Duration::from_secs(28),
                "{calls}, {:?}",
                begun.elapsed()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn later_calls_have_the_whole_time() {
        let (store, within) = (FaultyStore::with_faults(Faults::outage()), Duration::from_secs(30));
        // One second is left after connecting.
        let retrying = Retrying::of(Arc::new(store), within, after(Duration::from_secs(1)));
        for least in [0, 29] {
            let begun = Instant::now();
            retrying.inspect(&"s".parse().unwrap()).await.unwrap_err();
            let seconds = begun.elapsed().as_secs();
            assert!((least..=least + 1).contains(&seconds), "{seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_without_time_keeps_the_cause() {
        let end = after(Duration::from_secs(1));
        let calls = Cell::new(0);
        // Each call but the first waits until the end.
        let call = async || {
            calls.set(calls.get() + 1);
            if calls.get() > 1 {
                tokio::time::sleep_until(end).await;
                return Err(late(until(end)));
            }
            Err(Error::new(ErrorKind::Unavailable, "too many connections"))
        };
        let outcome: Result<()> = retry(Effect::Idempotent, end, |_| {}, call).await;
        assert_eq!((outcome.unwrap_err().to_string().as_str(), calls.get()), ("too many connections", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_outcome_of_a_change_is_not_retried() {
        let (outcome, calls) = tried(Effect::Change, ErrorKind::UnknownOutcome, 1).await;
        assert_eq!((outcome.unwrap_err().kind(), calls), (ErrorKind::UnknownOutcome, 1));
        assert_eq!(tried(Effect::Idempotent, ErrorKind::UnknownOutcome, 1).await.1, 2);
        for effect in [Effect::Idempotent, Effect::Change] {
            assert_eq!(tried(effect, ErrorKind::Denied, 1).await.1, 1, "permanent");
        }
    }
}
