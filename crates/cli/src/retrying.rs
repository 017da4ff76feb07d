//! Retries while a store is busy or unreachable: one rule for opening it and for every call of a command.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Change, Listing, Page, SequenceInfo, Store, StoreFuture};
use idmill::{Error, Result, SequenceName, Status};
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
/// receives the first error that is followed by a repetition.
pub(crate) async fn retry<T, F: Future<Output = Result<T>>>(
    effect: Effect,
    end: Instant,
    report: impl FnOnce(&Error),
    mut call: impl FnMut() -> F,
) -> Result<T> {
    let (mut longest, mut report) = (SHORTEST, Some(report));
    loop {
        let error = match call().await {
            Err(error) if effect.repeats_after(&error) => error,
            outcome => return outcome,
        };
        // Random pauses spread the attempts of many processes that start together.
        let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
        if pause >= until(end) {
            return Err(error);
        }
        if let Some(report) = report.take() {
            report(&error);
        }
        sleep(pause).await;
        longest = (longest * 2).min(LONGEST);
    }
}

/// A store whose calls are retried, except reserves: the allocator retries these itself.
#[derive(Debug)]
pub(crate) struct Retrying {
    store: Arc<dyn Store>,
    /// How long each call is retried.
    within: Duration,
}

impl Retrying {
    pub(crate) fn of(store: Arc<dyn Store>, within: Duration) -> Arc<dyn Store> {
        Arc::new(Self { store, within })
    }

    fn retry<'a, T: Send + 'a>(
        &'a self,
        effect: Effect,
        call: impl FnMut() -> StoreFuture<'a, Result<T>> + Send + 'a,
    ) -> StoreFuture<'a, Result<T>> {
        let report = |error: &Error| tracing::warn!("the store is unreachable; retrying: {error}");
        Box::pin(retry(effect, after(self.within), report, call))
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

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        self.retry(Effect::Change, move || self.store.remove(name))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use idmill::ErrorKind;

    use super::*;

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
    async fn unknown_outcome_of_a_change_is_not_retried() {
        let (outcome, calls) = tried(Effect::Change, ErrorKind::UnknownOutcome, 1).await;
        assert_eq!((outcome.unwrap_err().kind(), calls), (ErrorKind::UnknownOutcome, 1));
        assert_eq!(tried(Effect::Idempotent, ErrorKind::UnknownOutcome, 1).await.1, 2);
        for effect in [Effect::Idempotent, Effect::Change] {
            assert_eq!(tried(effect, ErrorKind::Denied, 1).await.1, 1, "permanent");
        }
    }
}
