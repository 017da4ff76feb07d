//! Open sequences, and draws from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use derive_more::Debug;
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
    pub(crate) allocator: Allocator<i64>,
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

    /// Runs `draw`, counts its caller as waiting, and counts the draw if it fails.
    async fn asked<T>(&self, draw: impl Future<Output = Result<T>>) -> Result<T> {
        let _waiting = Waiting::at(&self.waiting);
        draw.await.inspect_err(|_| {
            // Relaxed: only a counter.
            self.failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
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

/// Sequences by name.
pub(crate) type Open = BTreeMap<SequenceName, Arc<OpenSequence>>;

/// The sequences that clients draw from.
#[derive(Debug)]
pub(crate) struct OpenSequences {
    pub(crate) sequences: Sequences,
    /// The sequences for administration: the same store, but sequences can be created.
    pub(crate) administered: Sequences,
    timeout: Duration,
    #[debug(skip)]
    pub(crate) configure: Arc<Configure>,
    /// The open sequences, by name.
    #[debug(skip)]
    pub(crate) open: RwLock<Open>,
    /// The errors of sequences that could not be opened.
    #[debug(skip)]
    pub(crate) unopened: Unopened,
}

impl OpenSequences {
    pub(crate) fn of(sequences: Sequences, administered: Sequences, timeout: Duration) -> Self {
        let (open, unopened) = Default::default();
        let configure = Arc::new(|_: &str, builder| builder);
        Self { sequences, administered, timeout, configure, open, unopened }
    }

    /// Changes a stored sequence. Unless the change certainly failed, the sequence's ids in memory are
    /// dropped before this function returns.
    ///
    /// The change runs in its own task: the ids must be dropped even if the client disconnects. `change` gets
    /// the sequences for administration and the name.
    pub(crate) async fn changing<N, T, F>(
        self: &Arc<Self>,
        name: &N,
        change: impl FnOnce(Sequences, N) -> F,
    ) -> Result<T>
    where
        N: AsRef<str> + Clone,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let change = change(self.administered.clone(), name.clone());
        let mut stale = Stale(Some((self.clone(), name.as_ref().to_owned())));
        let changing = async move {
            let outcome = change.await;
            if outcome.as_ref().is_err_and(|error: &Error| error.status() != Status::Unknown) {
                stale.keep();
            }
            outcome
        };
        let lost = |_| Err(Error::from(ErrorKind::UnknownOutcome).of(name.as_ref()));
        tokio::spawn(changing.in_current_span()).await.unwrap_or_else(lost)
    }

    /// Stops all draws, and gives the ids in memory back to the store.
    pub(crate) async fn close(&self) {
        self.sequences.close().await;
        self.administered.close().await;
    }

    /// Returns the sequence if it is open.
    pub(crate) fn open(&self, name: &str) -> Option<Arc<OpenSequence>> {
        self.open.read().get(name).cloned()
    }

    /// Returns the sequence, and opens it from the store if necessary.
    pub(crate) async fn find(&self, name: &str) -> Result<Arc<OpenSequence>> {
        if let Some(served) = self.open(name) {
            return Ok(served);
        }
        let name = SequenceName::new(name)?;
        self.unopened.check(&name)?;
        let builder = self.sequences.sequence::<i64>(&name).timeout(self.timeout);
        let opened = (self.configure)(&name, builder).await;
        let allocator = opened.inspect_err(|error| self.unopened.note(&name, error))?;
        self.unopened.forget(&name);
        let opened = || OpenSequence {
            allocator,
            last: AtomicI64::new(NONE),
            waiting: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            used: AtomicBool::new(true),
        };
        Ok(self.open.write().entry(name).or_insert_with(|| Arc::new(opened())).clone())
    }

    /// Returns the sequences that end soon at their current rate, with the remaining time, soonest first.
    /// Idle sequences are left out, because their rate is out of date.
    pub(crate) fn ending(&self) -> Vec<(String, Duration)> {
        let ends = |served: &Arc<OpenSequence>| {
            let used = served.used.load(Ordering::Relaxed);
            let ends = served.allocator.snapshot().time_to_exhaustion.filter(|time| used && is_soon(*time));
            ends.map(|time| (served.allocator.name().to_owned(), time))
        };
        let mut ending: Vec<_> = self.open.read().values().filter_map(ends).collect();
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
        self.open.write().retain(|_, served| is_kept(served));
    }
}

/// A change in progress. Dropping this value drops the sequence's ids in memory, unless
/// [`keep`](Self::keep) was called.
struct Stale(Option<(Arc<OpenSequences>, String)>);

impl Stale {
    /// Keeps the ids, because nothing was changed.
    fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Stale {
    fn drop(&mut self) {
        if let Some((draws, name)) = self.0.take() {
            draws.sequences.discard(&name);
            draws.unopened.forget(&name);
        }
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
        let open = || draws.open.read().keys().map(ToString::to_string).collect::<Vec<_>>();
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
