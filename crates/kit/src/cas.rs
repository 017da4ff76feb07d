//! Implements a store on top of conditional writes. Stores that use this module share its loop "read, decide,
//! write if unchanged".

use std::fmt;

use super::{Contention, decide};
use idmill::SequenceName;
use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, Page, Reserve, SequenceInfo,
    StoreFuture, already_exists, not_found,
};
use idmill::{Error, Operation, Result};

/// A sequence as it was read, with a version that detects later changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<V> {
    /// The sequence.
    pub info: SequenceInfo,
    /// A version number, a revision, or the stored value.
    pub version: V,
}

/// The result of a conditional write.
#[derive(Clone, Debug)]
pub enum Swapped<V> {
    /// The write was applied.
    Done,
    /// The write was not applied, because the stored value differs. Contains the store's own error for the
    /// conflict, if it has one.
    Changed(Option<Error>),
    /// Like `Changed`, with the sequence that is stored instead (`None`: nothing). No second read is needed.
    Now(Option<Versioned<V>>),
}

/// Whether a write without a reply may be sent again.
///
/// If the second attempt is refused, the first one may have been applied. Then the store reads the sequence.
/// If it contains the random claim that this write stores, the write was applied: [`Swapped::Done`]. In every
/// other case the outcome is unknown. Never compare the value instead: another client may have written the
/// same value, and both would then grant the same range. The conformance trial `rival_in_a_cut` finds this
/// mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// Safe to send again: the condition can hold only once.
    Harmless,
    /// Must not be sent again: the condition may hold a second time, as for writes that give ids back or
    /// create a sequence.
    Never,
}

/// A storage backend that can write a sequence *if it has not changed since the read*. Examples are an etcd
/// transaction, a document version, an `UPDATE … WHERE`, or a file replaced under a lock. [`Swapping`]
/// implements the calls of [`Store`](idmill::store::Store) for such a backend.
///
/// The caller may drop any future at any await point. A write in progress may or may not be applied.
pub trait CompareAndSet: fmt::Debug + Send + Sync {
    /// A value that detects any write since the read. If the store never sends a write again, equal states
    /// are interchangeable, and the version can be `()`. Otherwise the version must differ between any two
    /// writes, even of equal states: use a revision of the engine, or a random claim that every write stores.
    type Version: Clone + fmt::Debug + Send + Sync;

    /// Returns [`Store::capabilities`](idmill::store::Store::capabilities). Set `gives_back` to `true` if the
    /// store forwards `give_back` to [`Swapping`], else to `false`.
    fn can(&self) -> Capabilities;

    /// Reads a sequence. Returns `None` if there is no sequence of this name.
    ///
    /// # Errors
    /// As [`Store::inspect`](idmill::store::Store::inspect).
    fn read<'a>(
        &'a self,
        name: &'a SequenceName,
    ) -> StoreFuture<'a, Result<Option<Versioned<Self::Version>>>>;

    /// Returns the cached sequence, if the store has a cache. The cached sequence may be stale: a decision
    /// based on it is valid only if the write succeeds.
    fn remembered(&self, name: &SequenceName) -> Option<Versioned<Self::Version>> {
        let _ = name;
        None
    }

    /// Writes `wanted` if `seen` is still stored. `wanted = None` removes the sequence; `seen = None`
    /// requires that no sequence is stored.
    ///
    /// # Errors
    /// As [`Store::reserve`](idmill::store::Store::reserve):
    /// [`UnknownOutcome`](idmill::ErrorKind::UnknownOutcome) if the write may have been applied.
    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Versioned<Self::Version>>,
        wanted: Option<&'a SequenceInfo>,
        resend: Resend,
    ) -> StoreFuture<'a, Result<Swapped<Self::Version>>>;

    /// Like [`swap`](Self::swap), for [`Store::set`](idmill::store::Store::set). The default writes only
    /// changes. A store with windows may have to write in any case, to recall their ranges.
    ///
    /// # Errors
    /// As [`swap`](Self::swap).
    fn swap_set<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: &'a Versioned<Self::Version>,
        wanted: &'a SequenceInfo,
        change: &'a Change,
    ) -> StoreFuture<'a, Result<Swapped<Self::Version>>> {
        let _ = change;
        if seen.info == *wanted {
            return Box::pin(async { Ok(Swapped::Done) });
        }
        self.swap(name, Some(seen), Some(wanted), Resend::Harmless)
    }

    /// Reads a page of the sequences.
    ///
    /// # Errors
    /// As [`Store::list`](idmill::store::Store::list).
    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>>;

    /// Rejects bounds that this store cannot hold.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), with the largest id that the store can hold.
    fn check(&self, bounds: Bounds) -> Result<()> {
        let _ = bounds;
        Ok(())
    }

    /// Returns the retry policy for lost races. A store that returns [`Swapped::Now`] must not pause after
    /// every loss: the returned sequence is outdated after a pause, so writers that do not pause would win
    /// every race.
    fn contention(&self) -> Contention {
        Contention::new()
    }
}

/// The sequence to write (`None`: remove it), and the result to return after the write.
type Decided<R> = Result<(Option<SequenceInfo>, R)>;

/// The kind of write that applies a decision.
#[derive(Clone, Copy)]
enum Write<'a> {
    Swap(Resend),
    Set(&'a Change),
}

/// Calls `decide` with the stored sequence, and writes the returned one if it differs; for a set,
/// [`CompareAndSet::swap_set`] decides whether to write. Retries if the sequence was changed concurrently, so
/// `decide` may run several times. The first call may get the [cached](CompareAndSet::remembered) sequence;
/// its result is used only if the write succeeds.
async fn change<S: CompareAndSet + ?Sized, R>(
    store: &S,
    name: &SequenceName,
    how: Write<'_>,
    decide: impl Fn(Option<&SequenceInfo>) -> Decided<R>,
) -> Result<R> {
    let mut contest = store.contention().begin();
    let (mut seen, mut is_fresh) = match store.remembered(name) {
        Some(seen) => (Some(seen), false),
        None => (store.read(name).await?, true),
    };
    loop {
        let stored = seen.as_ref().map(|seen| &seen.info);
        match decide(stored) {
            Ok((wanted, outcome))
                if wanted.as_ref() != stored || is_fresh && matches!(how, Write::Set(_)) =>
            {
                let swapped = match (how, &seen, &wanted) {
                    (Write::Set(change), Some(seen), Some(wanted)) => {
                        store.swap_set(name, seen, wanted, change).await?
                    }
                    (Write::Swap(resend), Some(_), _) => {
                        store.swap(name, seen.as_ref(), wanted.as_ref(), resend).await?
                    }
                    _ => store.swap(name, None, wanted.as_ref(), Resend::Never).await?,
                };
                seen = match swapped {
                    Swapped::Done => return Ok(outcome),
                    Swapped::Now(now) => {
                        contest.lost(None).await?;
                        now
                    }
                    Swapped::Changed(cause) => {
                        contest.lost(cause).await?;
                        store.read(name).await?
                    }
                };
            }
            decided if is_fresh => return decided.map(|(_, outcome)| outcome),
            _ => seen = store.read(name).await?,
        }
        is_fresh = true;
    }
}

/// The calls of [`Store`](idmill::store::Store), implemented by compare-and-set. A store forwards its calls:
///
/// ```ignore
/// impl Store for ToyStore {
///     idmill::store_calls!(|this| Swapping(this) =>
///         capabilities reserve give_back create inspect list set remove);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Swapping<'a, S: ?Sized>(pub &'a S);

#[allow(missing_docs, reason = "see the method of `Store` with the same name")]
#[allow(clippy::missing_errors_doc, reason = "see the method of `Store` with the same name")]
impl<'a, S: CompareAndSet + ?Sized> Swapping<'a, S> {
    pub fn capabilities(self) -> Capabilities {
        self.0.can()
    }

    pub fn reserve(self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        let Reserve { name, create, .. } = request;
        named(name, Operation::Reserve, async move {
            create.map_or(Ok(()), |bounds| self.0.check(bounds))?;
            let fresh = create.map(|bounds| SequenceInfo::new(name.clone(), bounds));
            let reserved = |stored: Option<&SequenceInfo>| {
                let (info, grant) = decide(stored.or(fresh.as_ref()).cloned(), request, None)?;
                Ok((Some(info), grant))
            };
            change(self.0, name, Write::Swap(Resend::Harmless), reserved).await
        })
    }

    /// Writes at most once. After a conflict, the returned ids become a gap: a network duplicate of this
    /// write may have caused the conflict, and others may have reserved these ids since.
    pub fn give_back(self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        named(&back.name, Operation::GiveBack, async move {
            let taken = |seen: Versioned<S::Version>| {
                let mut wanted = seen.info.clone();
                wanted.take_back(back).then_some((seen, wanted))
            };
            let taken_back = match self.0.remembered(&back.name).and_then(taken) {
                Some(taken_back) => Some(taken_back),
                None => self.0.read(&back.name).await?.and_then(taken),
            };
            let Some((seen, wanted)) = taken_back else { return Ok(false) };
            let swapped = self.0.swap(&back.name, Some(&seen), Some(&wanted), Resend::Never).await?;
            Ok(matches!(swapped, Swapped::Done))
        })
    }

    pub fn create(self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        named(name, Operation::Create, async move {
            self.0.check(bounds)?;
            let fresh = SequenceInfo::new(name.clone(), bounds);
            let created = |stored: Option<&SequenceInfo>| match stored {
                // The stored sequence is our own: the request was sent twice, and the second attempt
                // conflicted.
                Some(info) if info.identity == fresh.identity => Ok((Some(info.clone()), info.clone())),
                Some(_) => Err(already_exists(name)),
                None => Ok((Some(fresh.clone()), fresh.clone())),
            };
            change(self.0, name, Write::Swap(Resend::Never), created).await
        })
    }

    pub fn inspect(self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        named(name, Operation::Inspect, async move { Ok(self.0.read(name).await?.map(|seen| seen.info)) })
    }

    pub fn list(self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move { self.0.read_page(page).await.map_err(|error| error.during(Operation::List)) })
    }

    pub fn set(self, name: &'a SequenceName, wanted: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        named(name, Operation::Set, async move {
            let set = |stored: Option<&SequenceInfo>| {
                let mut info = stored.cloned().ok_or_else(|| not_found(name))?;
                info.apply(&wanted)?;
                self.0.check(info.bounds)?;
                Ok((Some(info.clone()), info))
            };
            change(self.0, name, Write::Set(&wanted), set).await
        })
    }

    pub fn remove(self, name: &'a SequenceName, expected: Option<Identity>) -> StoreFuture<'a, Result<bool>> {
        let removed = move |stored: Option<&SequenceInfo>| {
            stored.map_or(Ok(()), |stored| stored.check_identity(expected))?;
            Ok((None, stored.is_some()))
        };
        named(name, Operation::Remove, change(self.0, name, Write::Swap(Resend::Harmless), removed))
    }
}

fn named<'a, T>(
    name: &'a SequenceName,
    operation: Operation,
    outcome: impl Future<Output = Result<T>> + Send + 'a,
) -> StoreFuture<'a, Result<T>> {
    Box::pin(async move { outcome.await.map_err(|error| error.of(name).during(operation)) })
}

#[cfg(test)]
mod tests;
