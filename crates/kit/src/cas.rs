//! Makes a store of anything that can write on a condition. The loop "read, decide, write if nothing has
//! changed" is written here, once.

use std::fmt;

use super::Contention;
use idmill::SequenceName;
use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Listing, Page, Reserve, SequenceInfo, StoreFuture,
    already_exists, not_found,
};
use idmill::{Error, Operation, Result};

/// A sequence as it was read, with what tells later whether it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<V> {
    /// The sequence.
    pub info: SequenceInfo,
    /// A version, a revision, or the value itself.
    pub version: V,
}

/// What became of a write on a condition.
#[derive(Clone, Debug)]
pub enum Swapped<V> {
    /// It was written.
    Done,
    /// It was certainly not written, since something else is stored. The error is the store's own for that,
    /// if it has one.
    Changed(Option<Error>),
    /// The same, but this is what is stored instead (`None`: nothing). Nobody has to read it again.
    Now(Option<Seen<V>>),
}

/// Whether a write that was not answered may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// It may: its condition can hold only once.
    Harmless,
    /// It must not: its condition may hold a second time. Writes that give ids back, or create a sequence,
    /// are like that.
    Never,
}

/// A place for sequences that can write *if nothing has changed since the read*: by a transaction of etcd, a
/// version of a document, an `UPDATE … WHERE`, or a file that is replaced under a lock. Whatever implements
/// this is a [`Store`](idmill::store::Store).
///
/// Any future may be dropped at any await point. What it had under way is then applied, or not.
pub trait CompareAndSet: fmt::Debug + Send + Sync {
    /// What tells two states of a sequence apart.
    type Version: Clone + fmt::Debug + Send + Sync;

    /// What this store can do: [`Store::capabilities`](idmill::store::Store::capabilities). It can give back,
    /// so `gives_back` is `true`, unless the store does not pass that call on.
    fn can(&self) -> Capabilities;

    /// Reads a sequence; `None` if there is none of this name.
    ///
    /// # Errors
    /// As [`Store::inspect`](idmill::store::Store::inspect).
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Seen<Self::Version>>>>;

    /// What was last seen of a sequence, if the store remembers that. It may be out of date: what is decided
    /// from it counts only if it is written.
    fn remembered(&self, name: &SequenceName) -> Option<Seen<Self::Version>> {
        let _ = name;
        None
    }

    /// Writes `wanted` (`None`: removes the sequence) if `seen` (`None`: nothing) is still what is stored.
    ///
    /// # Errors
    /// As [`Store::reserve`](idmill::store::Store::reserve):
    /// [`UnknownOutcome`](idmill::ErrorKind::UnknownOutcome) where it may have been written.
    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Seen<Self::Version>>,
        wanted: Option<&'a SequenceInfo>,
        resend: Resend,
    ) -> StoreFuture<'a, Result<Swapped<Self::Version>>>;

    /// The same for [`Store::set`](idmill::store::Store::set), which a store may have to write although
    /// nothing about the sequence is to change. By default it is [`swap`](Self::swap), unless nothing is.
    ///
    /// # Errors
    /// As [`swap`](Self::swap).
    fn swap_set<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: &'a Seen<Self::Version>,
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

    /// Refuses bounds that this store cannot hold.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), naming the largest id that it can hold.
    fn check(&self, bounds: Bounds) -> Result<()> {
        let _ = bounds;
        Ok(())
    }

    /// How this store tries again when others were faster.
    fn contention(&self) -> Contention {
        Contention::new()
    }
}

/// The sequence to write (`None`: it is removed), and the answer once that is done.
type Decided<R> = Result<(Option<SequenceInfo>, R)>;

/// How a decision is written.
#[derive(Clone, Copy)]
enum Write<'a> {
    Swap(Resend),
    Set(&'a Change),
}

/// Asks `decide` what a sequence is to become, and writes that if it differs from what is stored. Begins
/// again if others changed the sequence in between, so `decide` may be called several times. The first time
/// it may get what the store [remembers](CompareAndSet::remembered); the answer to that counts only if it is
/// written.
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

/// The calls of [`Store`](idmill::store::Store) by compare-and-set. A store passes its own on to them:
///
/// ```ignore
/// impl Store for ToyStore {
///     idmill::store_calls!(|this| Swapping(this) =>
///         capabilities reserve give_back create inspect list set remove);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Swapping<'a, S: ?Sized>(pub &'a S);

#[allow(missing_docs, reason = "each is the call of `Store` of the same name")]
#[allow(clippy::missing_errors_doc, reason = "those of the call of `Store` of the same name")]
impl<'a, S: CompareAndSet + ?Sized> Swapping<'a, S> {
    pub fn capabilities(self) -> Capabilities {
        self.0.can()
    }

    pub fn reserve(self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        let Reserve { name, count, ceiling, create, .. } = request;
        named(name, Operation::Reserve, async move {
            create.map_or(Ok(()), |bounds| self.0.check(bounds))?;
            let fresh = create.map(|bounds| SequenceInfo::new(name.clone(), bounds));
            let reserved = |stored: Option<&SequenceInfo>| {
                let mut info = stored.or(fresh.as_ref()).cloned().ok_or_else(|| not_found(name))?;
                let grant = info.grant(*count, *ceiling)?;
                Ok((Some(info), grant))
            };
            change(self.0, name, Write::Swap(Resend::Harmless), reserved).await
        })
    }

    /// Reads, and writes once; after a conflict the rest is a gap. The conflict may be with our own write, if
    /// something on the way sent it twice, and others may have reserved what that gave back.
    pub fn give_back(self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        named(&back.name, Operation::GiveBack, async move {
            let taken = |seen: Seen<S::Version>| {
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
                // Our own: something on the way sent it twice, and the second was refused.
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

    pub fn remove(self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        let removed = |stored: Option<&SequenceInfo>| Ok((None, stored.is_some()));
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
