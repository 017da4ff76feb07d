//! The contract of a store.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{self, StreamExt as _};

use super::{
    Bounds, Change, GiveBack, Grant, Identity, Listing, Page, Records, Reserve, SequenceInfo, Unreadable,
    no_records,
};
use crate::error::{Error, ErrorKind, Operation, Result, string_enum};
use crate::name::SequenceName;

/// The return type of every async [`Store`] call: a boxed future, so that the trait is object-safe. The
/// allocation is negligible compared with the round trip of a refill.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

string_enum! {
    /// How long a grant survives. More durable variants compare as larger.
    #[derive(PartialOrd, Ord)]
    pub enum Durability, "durability" {
        /// A grant survives until the store's process ends.
        Process = "process",
        /// A returned grant survives a crash of the machine.
        Disk = "disk",
    }
}

/// The capabilities of a store. They are declared, not probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
// Serialize the former field `"retry":"gap"`, which earlier clients require.
#[cfg_attr(feature = "serde", serde(tag = "retry", rename = "gap"))]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each flag is independent of the others")]
pub struct Capabilities {
    /// How long a grant survives.
    pub durability: Durability,
    /// Whether [`Store::reserve_many`] is one round trip. If not, ids are reserved with a separate request
    /// per sequence, so that no sequence waits for another.
    pub batches: bool,
    /// Whether several processes may use the store concurrently.
    pub shared: bool,
    /// Whether [`Store::give_back`] takes ids back.
    pub gives_back: bool,
    /// Whether the store keeps [records](Store::swap_record), so that it can be the witness of another store.
    #[cfg_attr(feature = "serde", serde(default))]
    pub records: bool,
}

impl Capabilities {
    /// Returns the minimal capabilities of a store with this durability: it is used by one process, takes
    /// nothing back, has no batches and keeps no records.
    ///
    /// ```
    /// use idmill::store::{Capabilities, Durability};
    ///
    /// let database = Capabilities::new(Durability::Disk).shared(true).gives_back(true);
    /// assert!(!database.batches);
    /// ```
    pub const fn new(durability: Durability) -> Self {
        Self { durability, batches: false, shared: false, gives_back: false, records: false }
    }

    /// Sets [`batches`](Self::batches).
    #[must_use]
    pub const fn batches(self, batches: bool) -> Self {
        Self { batches, ..self }
    }

    /// Sets [`shared`](Self::shared).
    #[must_use]
    pub const fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// Sets [`gives_back`](Self::gives_back).
    #[must_use]
    pub const fn gives_back(self, gives_back: bool) -> Self {
        Self { gives_back, ..self }
    }

    /// Sets [`records`](Self::records).
    #[must_use]
    pub const fn records(self, records: bool) -> Self {
        Self { records, ..self }
    }
}

/// Number of concurrent calls to a store that cannot handle several sequences in one round trip.
const AT_ONCE: usize = 16;

/// Keeps sequences. See the [module](super) for the contract of an implementation.
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns the capabilities of this store. Callers may read them repeatedly, at any time.
    fn capabilities(&self) -> Capabilities;

    /// Reserves the next range of a sequence. Creates a missing sequence if the request
    /// [contains](Reserve::create) bounds.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the sequence does not exist and the request has no bounds;
    /// [`ErrorKind::Exhausted`] if no id is left; [`ErrorKind::Unavailable`] if it is certain that nothing
    /// was reserved; [`ErrorKind::UnknownOutcome`] if ids may have been reserved; permanent kinds for errors
    /// that a retry cannot fix.
    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>>;

    /// Reserves ranges of several sequences in one round trip. The results are in the order of the requests,
    /// and each request fails independently. Called only if [`Capabilities::batches`] is set.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve), for each request.
    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(requests.len());
            for request in requests {
                results.push(self.reserve(request).await);
            }
            results
        })
    }

    /// Takes back the unused rest of a range if no later id has been reserved: the next reserve grants it
    /// again. Returns `false` if a later id has been reserved, the identity differs, or the store cannot do
    /// this; the rest is then a gap. Allocators call this only if [`Capabilities::gives_back`] is set.
    ///
    /// This is one compare-and-set: `next` moves to `rest.start` on the condition that it *is* `rest.end` and
    /// that the identity is the same. The request must reach the store at most once, and is never sent again:
    /// after the first one was applied and other processes have reserved the ids, the condition could hold
    /// again.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve). After any error, count the rest as a gap.
    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        let _ = back;
        Box::pin(async { Ok(false) })
    }

    /// Takes back the unused rests of several sequences, when many are closed or evicted. The results are in
    /// the order of the rests. The default implementation calls [`give_back`](Self::give_back), 16 at a time;
    /// override it if the store can take them back in one round trip.
    ///
    /// # Errors
    /// Those of [`give_back`](Self::give_back), for each rest.
    fn give_back_many<'a>(&'a self, backs: &'a [GiveBack]) -> StoreFuture<'a, Vec<Result<bool>>> {
        let taken = stream::iter(backs).map(|back| self.give_back(back));
        Box::pin(taken.buffered(AT_ONCE).collect())
    }

    /// Creates a sequence.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if there is one of this name.
    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>>;

    /// Reads a sequence, or `None` if there is none of this name. Consumes no ids.
    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>>;

    /// Reads several sequences. The results are in the order of the names. The default implementation reads
    /// 16 at a time with separate calls; override it if the store can read them in one round trip.
    ///
    /// # Errors
    /// Those of [`inspect`](Self::inspect), for each name.
    fn inspect_many<'a>(
        &'a self,
        names: &'a [SequenceName],
    ) -> StoreFuture<'a, Vec<Result<Option<SequenceInfo>>>> {
        let inspected = stream::iter(names).map(|name| self.inspect(name));
        Box::pin(inspected.buffered(AT_ONCE).collect())
    }

    /// Reads a page of the sequences. Use [`Pages`] to read all pages.
    ///
    /// Together, the pages contain every sequence that exists from the first call to the last, and only
    /// sequences that existed at some point in between. A sequence may be listed more than once. A row that
    /// cannot be read as a sequence is reported in [`Listing::unreadable`], and does not make the page fail.
    /// The time and memory for a page do not grow with the number of sequences, unless the store's page in
    /// the docs states otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a cursor that the store cannot parse; any other error if the store
    /// cannot be read.
    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>>;

    /// Returns all sequences, ordered by name. Only for a small number of sequences: all are held in memory.
    ///
    /// # Errors
    /// Those of [`list`](Self::list), and the error of the first row that cannot be read.
    fn list_all(&self) -> StoreFuture<'_, Result<Vec<SequenceInfo>>> {
        Box::pin(async move {
            let (mut all, mut pages) = (Listing::default(), Pages::new(self, Page::default()));
            while let Some(page) = pages.next().await? {
                if let Some(Unreadable { error, .. }) = page.unreadable.into_iter().next() {
                    return Err(error);
                }
                all.sequences.extend(page.sequences);
            }
            Ok(all.sorted().sequences)
        })
    }

    /// Changes a sequence atomically, as [`SequenceInfo::apply`] describes, and returns its new state.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and those of [`SequenceInfo::apply`].
    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>>;

    /// Removes a sequence; `false` if there was none. If `expected` is given, the store atomically compares
    /// the identity, and removes only a sequence that has it. A sequence created later under the same name is
    /// another incarnation.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the sequence has another identity than `expected`: see
    /// [`SequenceInfo::check_identity`].
    fn remove<'a>(
        &'a self,
        name: &'a SequenceName,
        expected: Option<Identity>,
    ) -> StoreFuture<'a, Result<bool>>;

    /// Returns text that identifies the server or cluster that keeps this store, such as `etcd cluster 7`.
    /// `idmill-guard` rejects a witness on the same server as its store, since a restore or a failover of
    /// that server would revert both. `None`, the default, if the store cannot determine it.
    ///
    /// # Errors
    /// Those of reading from the store.
    fn server(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(None) })
    }

    /// Reads a record; `None` if nothing was written under this name.
    ///
    /// A *record* is a short text under a name, kept apart from the sequences. A witness (`idmill-guard`)
    /// uses records for the claims of another store's sequences. A sequence of the same name in this store is
    /// unrelated.
    ///
    /// # Errors
    /// Those of [`inspect`](Self::inspect); [`ErrorKind::Unsupported`] if this store keeps no records
    /// ([`Capabilities::records`]).
    fn record<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<String>>> {
        Box::pin(async move { Err(no_records().of(name).during(Operation::Inspect)) })
    }

    /// Atomically writes a record if the stored text is still `seen` (`None`: no record), and returns whether
    /// it was written. After it has returned `true`, the record is as durable as a grant.
    ///
    /// The write may be sent again after an unknown outcome, and a store may compare the stored text to find
    /// out whether the write was applied: callers must never write the same text twice under one name. A text
    /// has at most [`Records::LONGEST`] bytes of printable ASCII.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or a permanent kind if nothing was written; [`ErrorKind::UnknownOutcome`]
    /// if it may have been written; [`ErrorKind::Unsupported`] if this store keeps no records.
    fn swap_record<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a str>,
        wanted: &'a str,
    ) -> StoreFuture<'a, Result<bool>> {
        let _ = (seen, wanted);
        Box::pin(async move { Err(no_records().of(name).during(Operation::Set)) })
    }

    /// Reads a page of the records, with the guarantees of [`list`](Self::list).
    ///
    /// # Errors
    /// Those of [`list`](Self::list); [`ErrorKind::Unsupported`] if this store keeps no records.
    fn list_records<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Records>> {
        let _ = page;
        Box::pin(async { Err(no_records().during(Operation::List)) })
    }
}

/// Number of attempts to read or create a sequence that others concurrently create and remove.
const ROUNDS: usize = 8;

/// Reads a sequence, and creates it first if it does not exist. Other processes may concurrently create and
/// remove it.
///
/// # Errors
/// Those of [`Store::inspect`] and [`Store::create`]; [`Unavailable`](ErrorKind::Unavailable) if others
/// create and remove it during every attempt.
pub async fn ensure(store: &dyn Store, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
    for _ in 0..ROUNDS {
        if let Some(info) = store.inspect(name).await? {
            return Ok(info);
        }
        match store.create(name, bounds).await {
            // Created by another process, and possibly removed since.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            outcome => return outcome,
        }
    }
    let message = "other processes create and remove it repeatedly; try again, and find out which process \
                   removes it";
    Err(Error::new(ErrorKind::Unavailable, message).of(name).during(Operation::Create))
}

/// Reads all pages of a store, one after the other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// use idmill::store::{MemoryStore, Page, Pages};
///
/// let store = MemoryStore::new();
/// let mut pages = Pages::new(&store, Page::of("invoices-"));
/// while let Some(page) = pages.next().await? {
///     for info in page.sequences {
///         println!("{}: {:?}", info.name, info.next);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Pages<'a, S: ?Sized> {
    store: &'a S,
    page: Option<Page>,
}

impl<'a, S: Store + ?Sized> Pages<'a, S> {
    /// Starts at this page.
    pub fn new(store: &'a S, page: Page) -> Self {
        Self { store, page: Some(page) }
    }

    /// Returns the next page; `None` after the last. After an error, the next call reads the same page again.
    ///
    /// # Errors
    /// Those of [`Store::list`]; [`ErrorKind::StoreViolation`] if the store returns the same cursor again.
    pub async fn next(&mut self) -> Result<Option<Listing>> {
        let Some(page) = &mut self.page else { return Ok(None) };
        let listing = self.store.list(page).await?;
        match &listing.next {
            None => self.page = None,
            stuck if *stuck == page.after => {
                let message = "the store returned the same page of its list again; the rest cannot be listed";
                return Err(Error::new(ErrorKind::StoreViolation, message).during(Operation::List));
            }
            next => page.after.clone_from(next),
        }
        Ok(Some(listing))
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryStore;
    use super::*;
    use crate::sync::{AtomicUsize, Ordering};

    /// A store in which others create the sequence before, and remove it after, each of the first N calls of
    /// `create`.
    #[derive(Debug)]
    struct Fickle(MemoryStore, AtomicUsize);

    impl Store for Fickle {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
            self.0.reserve(request)
        }

        fn create<'a>(
            &'a self,
            name: &'a SequenceName,
            bounds: Bounds,
        ) -> StoreFuture<'a, Result<SequenceInfo>> {
            Box::pin(async move {
                let left = self.1.load(Ordering::Relaxed);
                if left == 0 {
                    return self.0.create(name, bounds).await;
                }
                self.1.store(left - 1, Ordering::Relaxed);
                self.0.create(name, bounds).await?;
                let refused = self.0.create(name, bounds).await;
                self.0.remove(name, None).await?;
                refused
            })
        }

        fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
            self.0.inspect(name)
        }

        fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
            self.0.list(page)
        }

        fn set<'a>(
            &'a self,
            name: &'a SequenceName,
            change: Change,
        ) -> StoreFuture<'a, Result<SequenceInfo>> {
            self.0.set(name, change)
        }

        fn remove<'a>(
            &'a self,
            name: &'a SequenceName,
            expected: Option<Identity>,
        ) -> StoreFuture<'a, Result<bool>> {
            self.0.remove(name, expected)
        }
    }

    #[tokio::test]
    async fn ensure_retries_while_others_create_and_remove() {
        let (name, bounds) = (SequenceName::new("s").unwrap(), Bounds::of::<u64>());
        let fickle = |times| Fickle(MemoryStore::new(), AtomicUsize::new(times));
        for times in [0, 1, ROUNDS - 1] {
            assert_eq!(ensure(&fickle(times), &name, bounds).await.unwrap().name, name, "{times}");
        }
        let error = ensure(&fickle(ROUNDS), &name, bounds).await.unwrap_err();
        // A retry may succeed, so this is not `NotFound`.
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
