//! What every store can be asked.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{self, StreamExt as _};

use super::{
    Bounds, Change, GiveBack, Grant, Listing, Page, Records, Reserve, SequenceInfo, Unreadable, no_records,
};
use crate::error::{Error, ErrorKind, Operation, Result, named};
use crate::name::SequenceName;

/// What every call of a [`Store`] returns: a boxed future, so that the trait is object-safe. One allocation
/// for a refill costs nothing beside its round trip.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

named! {
    /// How long a grant survives. What survives more is larger.
    #[derive(PartialOrd, Ord)]
    pub enum Durability, "durability" {
        /// Until the process ends.
        Process = "process",
        /// A crash of the machine, once the grant has been returned.
        Disk = "disk",
    }
}

/// What a store can do; declared, not probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
// An earlier field, `"retry":"gap"`: clients of that time require it.
#[cfg_attr(feature = "serde", serde(tag = "retry", rename = "gap"))]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an answer of its own, not a state")]
pub struct Capabilities {
    /// How long a grant survives.
    pub durability: Durability,
    /// Whether [`Store::reserve_many`] is one round trip. If not, each sequence is asked for on its own, so
    /// that none waits for another.
    pub batches: bool,
    /// Whether several processes may use it at the same time.
    pub shared: bool,
    /// Whether [`Store::give_back`] takes anything back.
    pub gives_back: bool,
    /// Whether it keeps [records](Store::swap_record), so that it can be the witness of another store.
    #[cfg_attr(feature = "serde", serde(default))]
    pub records: bool,
}

impl Capabilities {
    /// A store whose grants survive this, and that can do nothing beyond what every store can: it is used by
    /// one process, takes nothing back and answers no batches.
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

    /// With or without [`batches`](Self::batches).
    #[must_use]
    pub const fn batches(self, batches: bool) -> Self {
        Self { batches, ..self }
    }

    /// For [several processes](Self::shared) or one.
    #[must_use]
    pub const fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// With or without [`gives_back`](Self::gives_back).
    #[must_use]
    pub const fn gives_back(self, gives_back: bool) -> Self {
        Self { gives_back, ..self }
    }

    /// With or without [`records`](Self::records).
    #[must_use]
    pub const fn records(self, records: bool) -> Self {
        Self { records, ..self }
    }
}

/// How many sequences are read at the same time where a store has no way to read several.
const INSPECTED_AT_ONCE: usize = 16;

/// Where sequences live. See the [module](super) for the contract that an implementation must keep.
pub trait Store: Send + Sync + fmt::Debug {
    /// What this store can do. Asked once, before anything else.
    fn capabilities(&self) -> Capabilities;

    /// Reserves the next range of a sequence, creating the sequence if it does not exist and the request
    /// [says](Reserve::create) how.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist and has to; [`ErrorKind::Exhausted`] if no id is left;
    /// [`ErrorKind::Unavailable`] if certainly nothing was reserved; [`ErrorKind::UnknownOutcome`] if that is
    /// not known; permanent kinds for what does not pass by itself.
    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>>;

    /// Reserves for several sequences in one round trip; the results are in the order of the requests, and
    /// one sequence's failure is its own. Called only if [`Capabilities::batches`] is set.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve), for each request.
    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(requests.len());
            for request in requests {
                results.push(self.reserve(request).await);
            }
            results
        })
    }

    /// Takes back the unused rest of a range if it is the end of all that was reserved: the next reserve
    /// grants it again. Returns `false` if it is not, or if the store cannot do this; the rest is then a gap.
    /// Called only if [`Capabilities::gives_back`] is set.
    ///
    /// This is one compare-and-set: `next` moves to `rest.start` on the condition that it *is*
    /// `rest.end` and that the identity is the same. It must reach the store at most once, and is never
    /// sent again: the first one may have been applied and the ids reserved by others, so that the
    /// condition holds a second time.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve). After any, the rest is a gap.
    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        let _ = back;
        Box::pin(async { Ok(false) })
    }

    /// Creates a sequence.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if there is one of this name.
    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>>;

    /// Reads a sequence; `None` if there is none of this name. Consumes nothing.
    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>>;

    /// Reads several sequences at once; the results are in the order of the names. A store that can do so in
    /// one round trip should: this reads 16 at a time, each on its own.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect), for each.
    fn inspect_many<'a>(
        &'a self,
        names: &'a [SequenceName],
    ) -> StoreFuture<'a, Vec<Result<Option<SequenceInfo>>>> {
        let inspected = stream::iter(names).map(|name| self.inspect(name));
        Box::pin(inspected.buffered(INSPECTED_AT_ONCE).collect())
    }

    /// Reads a page of the sequences. [`Pages`] reads one after the other.
    ///
    /// All pages together have every sequence that exists from the first page to the last, and none that does
    /// not exist at some time in between; a sequence may come twice. A row that cannot be read as a sequence
    /// is reported beside those that can ([`Listing::unreadable`]), and does not stop a page from being read.
    /// The store takes memory and time for a page that do not grow with the number of sequences, unless its
    /// page in the docs says otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a cursor of another store; any other error
    /// if the store cannot be read.
    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>>;

    /// Every sequence, by name: for few of them, since all are in memory at once.
    ///
    /// # Errors
    /// Those of [`list`](Self::list), and that of the first row that cannot be read.
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

    /// Changes a sequence, as [`SequenceInfo::apply`] describes, atomically; returns it as it is now.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and those of [`SequenceInfo::apply`].
    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>>;

    /// Removes a sequence; `false` if there was none. One created later under the same
    /// name is another incarnation.
    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>>;

    /// Names the server, or the cluster, that keeps this store, in words for an error: `etcd cluster 7`. A
    /// restore or a failover of it takes back everything that it keeps, so a witness (`idmill-guard`) needs
    /// another one. `None` if the store cannot tell, which is the default.
    ///
    /// # Errors
    /// Those of reading.
    fn server(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(None) })
    }

    /// Reads a record; `None` if nothing was written under this name.
    ///
    /// A *record* is a short text under a name, kept apart from the sequences: a
    /// witness (`idmill-guard`) keeps what was claimed of another store's sequence there.
    /// Whether there is a sequence of the same name here makes no difference.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect); [`ErrorKind::Unsupported`] if this store keeps none, as
    /// [`Capabilities::records`] says.
    fn record<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<String>>> {
        Box::pin(async move { Err(no_records().of(name).during(Operation::Inspect)) })
    }

    /// Writes a record if `seen` (`None`: nothing) is still what is kept, in one atomic step; returns whether
    /// it was. Once it has returned `true`, the record is as durable as a grant.
    ///
    /// It may be sent again after an unknown outcome, and a store may tell by the text that is kept whether
    /// it was applied: no two writes under a name are of the same text, whoever makes them. A text has at
    /// most [`Records::LONGEST`] bytes, all of them printable ASCII.
    ///
    /// # Errors
    /// As [`set`](Self::set), where nothing was written; [`ErrorKind::UnknownOutcome`] where it may have
    /// been; [`ErrorKind::Unsupported`] if this store keeps no records.
    fn swap_record<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a str>,
        wanted: &'a str,
    ) -> StoreFuture<'a, Result<bool>> {
        let _ = (seen, wanted);
        Box::pin(async move { Err(no_records().of(name).during(Operation::Set)) })
    }

    /// Reads a page of the records. All pages together have what those of [`list`](Self::list) have of
    /// sequences.
    ///
    /// # Errors
    /// As [`list`](Self::list); [`ErrorKind::Unsupported`] if this store keeps no records.
    fn list_records<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Records>> {
        let _ = page;
        Box::pin(async { Err(no_records().during(Operation::List)) })
    }
}

/// How often a sequence is looked for and created while others create and remove it.
const ROUNDS: usize = 8;

/// Reads a sequence, and creates it first if it does not exist. Several may create it at once, and remove it.
///
/// # Errors
/// Those of [`Store::inspect`] and [`Store::create`]; [`Unavailable`](ErrorKind::Unavailable) while others create
/// and remove it again and again.
pub async fn ensure(store: &dyn Store, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
    for _ in 0..ROUNDS {
        if let Some(info) = store.inspect(name).await? {
            return Ok(info);
        }
        match store.create(name, bounds).await {
            // By somebody else, and it may be gone again.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            outcome => return outcome,
        }
    }
    let message = "others create and remove it all the time; try again, and see who removes it";
    Err(Error::new(ErrorKind::Unavailable, message).of(name).during(Operation::Create))
}

/// All pages of a store, one after the other.
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
    /// From this page on.
    pub fn new(store: &'a S, page: Page) -> Self {
        Self { store, page: Some(page) }
    }

    /// The next page; `None` after the last. After an error, the same page is read again.
    ///
    /// # Errors
    /// Those of [`Store::list`]; [`ErrorKind::StoreViolation`] if the store does not get on.
    pub async fn next(&mut self) -> Result<Option<Listing>> {
        let Some(page) = &mut self.page else { return Ok(None) };
        let listing = self.store.list(page).await?;
        match &listing.next {
            None => self.page = None,
            stuck if *stuck == page.after => {
                let message =
                    "the store began the same page of its list again; nothing after it can be listed";
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

    /// Others create a sequence just before, and remove it just after, so often.
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
                self.0.remove(name).await?;
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

        fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
            self.0.remove(name)
        }
    }

    #[tokio::test]
    async fn what_others_create_and_remove_meanwhile_is_created_after_all() {
        let (name, bounds) = (SequenceName::new("s").unwrap(), Bounds::of::<u64>());
        let fickle = |times| Fickle(MemoryStore::new(), AtomicUsize::new(times));
        for times in [0, 1, ROUNDS - 1] {
            assert_eq!(ensure(&fickle(times), &name, bounds).await.unwrap().name, name, "{times}");
        }
        let error = ensure(&fickle(ROUNDS), &name, bounds).await.unwrap_err();
        // It may work the next time, and is no sequence that does not exist.
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
