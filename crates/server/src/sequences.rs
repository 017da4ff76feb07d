//! Open sequences, and draws from them.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use derive_more::Debug;
use idmill::store::{Bounds, Change, Identity, SequenceInfo};
use idmill::{
    Allocator, Error, ErrorKind, IdRange, Operation, Ranges, Result, SequenceBuilder, SequenceName,
    Sequences, Status,
};
use parking_lot::RwLock;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::last_error::Unopened;

/// The value of `last` before an id is handed out. No id is negative.
const NONE: i64 = -1;
/// Maximum number of ids in one request.
const MOST_IDS: u64 = 1_000_000;
/// A sequence that is exhausted within this time at its current rate counts as ending soon.
const SOON: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Sets the settings of a sequence before it is opened.
pub(crate) type Configure = dyn Fn(&str, SequenceBuilder<i64>) -> SequenceBuilder<i64> + Send + Sync;

/// An open sequence. Ids are at most 2^63 − 1, the largest integer of the Redis protocol.
#[derive(Debug)]
pub(crate) struct OpenSequence {
    allocator: Allocator<i64>,
    last: AtomicI64,
    /// Number of callers that wait for the store.
    waiting: AtomicUsize,
    /// Number of failed draws.
    failed: AtomicU64,
    /// Whether the sequence was opened or drawn from since the last [sweep](OpenSequences::sweep).
    used: AtomicBool,
}

impl OpenSequence {
    /// Returns the next id from memory, without a wait.
    #[inline]
    pub(crate) fn try_next(&self) -> Result<i64> {
        self.allocator.try_next().inspect(|id| self.note(*id))
    }

    pub(crate) async fn next(&self, due: Instant) -> Result<i64> {
        self.asked(self.until(due).next()).await.inspect(|id| self.note(*id))
    }

    /// Returns the allocator, whose calls wait until `due`.
    fn until(&self, due: Instant) -> Allocator<i64> {
        self.allocator.within(due.saturating_duration_since(Instant::now()))
    }

    /// Returns `n` ids in as few ranges as possible.
    pub(crate) async fn take(&self, n: u64, due: Instant) -> Result<Ranges<i64>> {
        self.may_take(n)?;
        let ranges = self.asked(self.until(due).take(n)).await?;
        ranges.ranges().iter().filter_map(IdRange::last).for_each(|last| self.note(last));
        Ok(ranges)
    }

    /// Returns `n` consecutive ids.
    pub(crate) async fn take_in_a_row(&self, n: u64, due: Instant) -> Result<IdRange<i64>> {
        self.may_take(n)?;
        let range = self.asked(self.until(due).take_in_a_row(n)).await?;
        range.last().inspect(|last| self.note(*last));
        Ok(range)
    }

    fn may_take(&self, n: u64) -> Result<()> {
        if n <= MOST_IDS {
            return Ok(());
        }
        let message = format!("{n} ids in one request; the maximum is {MOST_IDS}, so send several requests");
        Err(Error::invalid(message).of(self.allocator.name()).during(Operation::Draw))
    }

    /// Returns the largest id that was handed out since the sequence was opened; `None` before the first.
    pub(crate) fn last(&self) -> Option<i64> {
        // Relaxed: the result has no order relative to concurrent draws.
        Some(self.last.load(Ordering::Relaxed)).filter(|last| *last != NONE)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Runs `draw`, and counts it if it fails.
    async fn asked<T>(&self, draw: impl Future<Output = Result<T>>) -> Result<T> {
        self.counted(draw).await.inspect_err(|_| {
            // Relaxed: only a counter.
            self.failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Runs `draw`, and counts the caller as waiting once the future is pending.
    async fn counted<T>(&self, draw: impl Future<Output = T>) -> T {
        let (mut draw, mut waiting) = (pin!(draw), None);
        poll_fn(|context| {
            let polled = draw.as_mut().poll(context);
            if polled.is_pending() && waiting.is_none() {
                waiting = Some(Waiting::at(&self.waiting));
            }
            polled
        })
        .await
    }

    pub(crate) fn allocator(&self) -> &Allocator<i64> {
        &self.allocator
    }

    #[inline]
    fn note(&self, id: i64) {
        self.last.fetch_max(id, Ordering::Relaxed);
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// Counts a waiting caller until this value is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn at(count: &'a AtomicUsize) -> Self {
        // Relaxed: only shown on the page.
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns whether a sequence that is exhausted after this time counts as ending soon.
pub(crate) fn is_soon(to_exhaustion: Duration) -> bool {
    to_exhaustion < SOON
}

/// The open sequences, by name.
#[derive(Debug)]
pub(crate) struct OpenSequences {
    sequences: Sequences,
    administered: Sequences,
    timeout: Duration,
    #[debug(skip)]
    configure: Arc<Configure>,
    #[debug(skip)]
    open: Arc<Open>,
}

/// Open sequences, and the errors of sequences that could not be opened.
#[derive(Debug, Default)]
struct Open {
    served: RwLock<BTreeMap<SequenceName, Arc<OpenSequence>>>,
    unopened: Unopened,
}

impl OpenSequences {
    pub(crate) fn of(sequences: Sequences, administered: Sequences, timeout: Duration) -> Self {
        Self {
            sequences,
            administered,
            timeout,
            configure: Arc::new(|_, builder| builder),
            open: Arc::default(),
        }
    }

    /// Uses these settings for each sequence that is opened.
    pub(crate) fn configured(self, configure: Arc<Configure>) -> Self {
        Self { configure, ..self }
    }

    pub(crate) fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Returns the sequences for administration: the same store, but sequences can be created.
    pub(crate) fn administered(&self) -> &Sequences {
        &self.administered
    }

    pub(crate) async fn create(&self, name: &str, bounds: Bounds) -> Result<SequenceInfo> {
        let (administered, of) = (self.administered.clone(), name.to_owned());
        self.changing(name, async move { administered.admin().create(of, bounds).await }).await
    }

    pub(crate) async fn set(&self, name: &str, change: Change) -> Result<SequenceInfo> {
        let (administered, of) = (self.administered.clone(), name.to_owned());
        self.changing(name, async move { administered.admin().set(of, change).await }).await
    }

    pub(crate) async fn remove(&self, name: &str, expected: Option<Identity>) -> Result<bool> {
        let (administered, of) = (self.administered.clone(), name.to_owned());
        let remove = async move {
            match expected {
                Some(identity) => administered.admin().remove_if(of, identity).await,
                None => administered.admin().remove(of).await,
            }
        };
        self.changing(name, remove).await
    }

    /// Changes a stored sequence. Unless the change certainly failed, the sequence's ids in memory are
    /// dropped before this function returns.
    ///
    /// The change runs in its own task: the ids must be dropped even if the client disconnects.
    pub(crate) async fn changing<T: Send + 'static>(
        &self,
        name: &str,
        change: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut stale =
            Stale { sequences: self.sequences.clone(), open: self.open.clone(), name: Some(name.to_owned()) };
        let changing = async move {
            let outcome = change.await;
            if outcome.as_ref().is_err_and(|error: &Error| error.status() != Status::Unknown) {
                stale.keep();
            }
            outcome
        };
        let lost = |_| Err(Error::from(ErrorKind::UnknownOutcome).of(name));
        tokio::spawn(changing.in_current_span()).await.unwrap_or_else(lost)
    }

    /// Stops all draws, and gives the ids in memory back to the store.
    pub(crate) async fn close(&self) {
        self.sequences.close().await;
        self.administered.close().await;
    }

    /// Returns the sequence if it is open.
    pub(crate) fn open(&self, name: &str) -> Option<Arc<OpenSequence>> {
        self.open.served.read().get(name).cloned()
    }

    /// Returns the sequence, and opens it from the store if necessary.
    pub(crate) async fn find(&self, name: &str) -> Result<Arc<OpenSequence>> {
        if let Some(served) = self.open(name) {
            return Ok(served);
        }
        let name = SequenceName::new(name)?;
        self.unopened(&name)?;
        let builder = self.sequences.sequence::<i64>(&name).timeout(self.timeout);
        let opened = (self.configure)(&name, builder).await;
        let allocator = opened.inspect_err(|error| self.open.unopened.note(&name, error))?;
        self.open.unopened.forget(&name);
        let opened = || OpenSequence {
            allocator,
            last: AtomicI64::new(NONE),
            waiting: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            used: AtomicBool::new(true),
        };
        Ok(self.open.served.write().entry(name).or_insert_with(|| Arc::new(opened())).clone())
    }

    /// Checks the last error of a name that is not open.
    ///
    /// # Errors
    /// The cached error, if the sequence could not be opened a short time ago.
    pub(crate) fn unopened(&self, name: &str) -> Result<()> {
        self.open.unopened.check(name)
    }

    pub(crate) fn count(&self) -> usize {
        self.open.served.read().len()
    }

    /// Calls `look` with the open sequences, ordered by name. `look` must not open a sequence: the map is
    /// locked.
    pub(crate) fn with_open<T>(
        &self,
        look: impl FnOnce(&BTreeMap<SequenceName, Arc<OpenSequence>>) -> T,
    ) -> T {
        look(&self.open.served.read())
    }

    /// Returns the sequences that end soon at their current rate, with the remaining time, soonest first.
    /// Idle sequences are left out, because their rate is out of date.
    pub(crate) fn ending(&self) -> Vec<(String, Duration)> {
        let ends = |served: &Arc<OpenSequence>| {
            let used = served.used.load(Ordering::Relaxed);
            let ends = served.allocator.snapshot().time_to_exhaustion.filter(|time| used && is_soon(*time));
            ends.map(|time| (served.allocator.name().to_owned(), time))
        };
        let mut ending: Vec<_> = self.open.served.read().values().filter_map(ends).collect();
        ending.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        ending
    }

    /// Closes the sequences that were neither opened nor drawn from since the last sweep, so that the engine
    /// can evict them. A sequence that a client still holds stays open. Otherwise another client would open a
    /// second entry that does not count the draws of the first.
    pub(crate) fn sweep(&self) {
        let is_kept = |served: &Arc<OpenSequence>| {
            served.used.swap(false, Ordering::Relaxed) || Arc::strong_count(served) > 1
        };
        self.open.served.write().retain(|_, served| is_kept(served));
    }
}

/// A change in progress. Dropping this value drops the sequence's ids in memory, unless [`keep`](Self::keep)
/// was called.
struct Stale {
    sequences: Sequences,
    open: Arc<Open>,
    name: Option<String>,
}

impl Stale {
    /// Keeps the ids, because nothing was changed.
    fn keep(&mut self) {
        self.name = None;
    }
}

impl Drop for Stale {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        self.sequences.discard(&name);
        self.open.unopened.forget(&name);
    }
}

#[cfg(test)]
mod tests {
    use idmill::store::MemoryStore;

    use super::*;

    fn draws() -> OpenSequences {
        let sequences = Sequences::new(MemoryStore::new()).unwrap();
        OpenSequences::of(sequences.clone(), sequences, Duration::from_secs(60))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn sweep_closes_unused_sequences() {
        let draws = draws();
        let held = draws.find("held").await.unwrap();
        draws.find("drawn").await.unwrap().next(soon()).await.unwrap();
        draws.find("idle").await.unwrap();
        let open = || draws.with_open(|open| open.keys().map(ToString::to_string).collect::<Vec<_>>());
        draws.sweep();
        assert_eq!(open(), ["drawn", "held", "idle"], "each was opened since the last sweep");
        draws.find("drawn").await.unwrap().next(soon()).await.unwrap();
        draws.sweep();
        assert_eq!(open(), ["drawn", "held"]);
        assert_eq!(held.next(soon()).await.unwrap(), 1);
        assert_eq!(draws.open("held").and_then(|served| served.last()), Some(1));
    }

    #[test]
    fn sequence_that_lasts_thirty_days_does_not_end_soon() {
        let month = Duration::from_secs(2_592_000);
        assert!(is_soon(month - Duration::from_nanos(1)) && !is_soon(month));
    }

    #[tokio::test]
    async fn request_takes_at_most_a_million_ids() {
        let served = draws().find("s").await.unwrap();
        assert_eq!(served.take(1_000_000, soon()).await.unwrap().len(), 1_000_000);
        let error = served.take(1_000_001, soon()).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::InvalidInput, Some(Operation::Draw)));
        assert!(error.to_string().contains("1000001 ids in one request; the maximum is 1000000"), "{error}");
        assert_eq!((served.last(), served.failed()), (Some(1_000_000), 0));
    }

    #[tokio::test]
    async fn block_is_consecutive_and_never_overlaps() {
        let served = draws().find("s").await.unwrap();
        let mut past = 1;
        for n in 1..200 {
            let block = served.take_in_a_row(n, soon()).await.unwrap();
            assert!(block.len() == n && block.start() >= past, "{block:?} after {past}");
            past = block.start() + n;
        }
        assert_eq!(served.last(), i64::try_from(past).ok().map(|past| past - 1));
    }
}
