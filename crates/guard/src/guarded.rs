//! A store whose grants are claimed at a witness before they are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;

use super::apart::is_mark;
use super::claim::{Attempt, Refusals};
use super::witness::{not_read, not_writable, of_the_witness};
use super::{Ledger, Witness, Write};
use idmill::SequenceName;
use idmill::store::{Capabilities, GiveBack, Grant, Reserve, Store, StoreFuture};
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::among;

/// A store whose grants are used only after a [`Witness`] has recorded them.
///
/// A reserve reads the ledger, reserves from the store, and then claims the grant. The two extra round trips
/// are in the refill, so draws do not wait for them while ids are in memory. A batch of reserves waits for no
/// more round trips than a single one. While the witness is unreachable, reserves fail with
/// [`Unavailable`](ErrorKind::Unavailable) and reserve nothing; if the witness is missing, damaged or denies
/// access, with [`Witness`](ErrorKind::Witness). A claim with an unknown outcome makes the range a gap. After
/// a claim that definitely failed, the range is returned to the store, or is a [gap](Error::gap) if the store
/// cannot take it back. No more ids are then reserved until the witness is writable.
///
/// If ids were claimed before, or if the grant is below ids that were claimed before the reserve, and the
/// sequence has the same incarnation and no earlier epoch, the store went back in time. The store's next id
/// is raised above all claims. [`healed`](Self::healed) counts the event, an error is logged, and ids
/// continue above the claims. A claim that reaches the witness too late, after many other claims, is
/// rejected. A late claim is not logged, and another range is reserved.
///
/// For another incarnation, or an earlier epoch, manual action is required: reserves fail with
/// [`StoreViolation`](ErrorKind::StoreViolation). The rejected range is returned to the store, and nothing
/// more is reserved until the sequence or its ledger changes.
///
/// [`set`](Store::set) with a next id is recorded too: the ids below it count as claimed. Claimed ids stay
/// claimed, unless they are given back. Only two other calls lower the claims, after the
/// store has confirmed them: [`set`](Store::set) with [`backwards`](idmill::store::Change::backwards), and
/// [`remove`](Store::remove) followed by [`forget`](super::forget). After a removal without `forget`, the
/// next sequence of this name starts above all claims.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// use idmill_guard::{Guarded, MemoryWitness};
/// use idmill::store::MemoryStore;
/// use idmill::Sequences;
///
/// let store = MemoryStore::new();
/// let witness = MemoryWitness::new(); // in production, another server or a `FileWitness`
/// let guarded = || Guarded::new(store.clone(), witness.clone());
///
/// let orders = Sequences::new(guarded())?.sequence::<u64>("orders").step(10).await?;
/// let backup = store.snapshot();
/// let last = orders.next().await?;
/// store.restore(&backup); // the store no longer has the grant
///
/// let orders = Sequences::new(guarded())?.sequence::<u64>("orders").step(10).await?;
/// assert!(orders.next().await? > last);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Guarded {
    pub(super) store: Arc<dyn Store>,
    pub(super) witness: Arc<dyn Witness>,
    pub(super) healed: AtomicU64,
    /// Whether a write must prove that the witness is writable before the next reserve: a claim failed, or
    /// the store does not accept returned ids and no such write has succeeded yet.
    pub(super) is_doubtful: AtomicBool,
    /// The place of the store, for the ledgers.
    pub(super) place: Option<Arc<str>>,
    pub(super) refusals: Refusals,
}

impl Guarded {
    /// Guards a store with a witness. Either may be an `Arc`.
    pub fn new(store: impl Store + 'static, witness: impl Witness + 'static) -> Self {
        let is_doubtful = AtomicBool::new(!store.capabilities().gives_back);
        let (store, witness) = (Arc::new(store), Arc::new(witness));
        let (healed, refusals) = (AtomicU64::new(0), Refusals::default());
        Self { store, witness, healed, is_doubtful, place: None, refusals }
    }

    /// Notes the place of the store in each ledger, such as its URL without secrets. `idmill doctor` then
    /// recognizes the ledgers of another store. At most 100 characters are kept.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        Self { place: Some(shortened(place).into()), ..self }
    }

    /// Returns how many times the store was found to have gone back in time.
    pub fn healed(&self) -> u64 {
        // Relaxed: a counter that nothing else depends on.
        self.healed.load(Ordering::Relaxed)
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let attempt = self.attempt(request).await?;
        let first = match self.first_claim(&attempt) {
            Some(wanted) => Some(self.witness.swap(&request.name, attempt.seen.as_ref(), &wanted).await),
            None => None,
        };
        self.settled(request, attempt, first).await
    }

    /// Reserves a range. Reads the ledger first: a range that cannot be claimed must not be reserved, and a
    /// grant is judged by the earlier claims.
    pub(super) async fn attempt(&self, request: &Reserve) -> Result<Attempt> {
        let name = &request.name;
        let seen = self.witness.read(name).await.map_err(not_read)?;
        let seen = self.writable(name, seen).await?;
        self.admitted(name, seen.as_ref()).await?;
        let grant = self.store.reserve(request).await?;
        Ok(Attempt { seen, grant })
    }

    /// Rejects a reserve whose range would certainly be refused.
    async fn admitted(&self, name: &SequenceName, seen: Option<&Ledger>) -> Result<()> {
        if is_mark(name) {
            return Err(Error::invalid("this name is reserved for records of the guard; use another"));
        }
        self.refusals.check(name, seen, &*self.store).await
    }

    /// Returns the ledger. If it is in doubt whether the witness is writable, a write checks this first.
    async fn writable(&self, name: &SequenceName, seen: Option<Ledger>) -> Result<Option<Ledger>> {
        // Relaxed: a hint, local to each process.
        if !self.is_doubtful.load(Ordering::Relaxed) {
            return Ok(seen);
        }
        let touched = match &seen {
            Some(seen) => seen.touched(),
            None => match self.store.inspect(name).await? {
                Some(stored) => Ledger::opened(&stored),
                // The reserve will create the sequence.
                None => return Ok(None),
            },
        };
        let written = self.witness.swap(name, seen.as_ref(), &touched).await;
        if !written.map_err(not_writable)? {
            return self.witness.read(name).await.map_err(not_read);
        }
        // Relaxed: as above.
        self.is_doubtful.store(false, Ordering::Relaxed);
        // Read the ledger back: a witness may add a stamp.
        self.witness.read(name).await.map_err(not_read)
    }

    /// Like [`try_reserve`](Self::try_reserve), with the same number of round trips for the whole batch.
    async fn claimed_many(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let names: Vec<_> = requests.iter().map(|request| request.name.clone()).collect();
        let looked = self.looked(&names).await.into_iter().zip(requests);
        let asked = join_all(looked.map(|(seen, request)| async move {
            let seen = seen?;
            self.admitted(&request.name, seen.as_ref()).await?;
            Ok((request.clone(), seen))
        }));
        let (asked, lost) = (asked.await.into_iter(), ErrorKind::UnknownOutcome);
        among(asked, lost, async |asked| self.reserved_many(asked).await).await
    }

    /// Reads the ledgers. If it is in doubt whether the witness is writable, a write to one of them checks
    /// this.
    async fn looked(&self, names: &[SequenceName]) -> Vec<Result<Option<Ledger>>> {
        let read = self.witness.read_many(names).await.into_iter();
        let mut looked: Vec<_> = read.map(|seen| seen.map_err(not_read)).collect();
        // A ledger that exists is written without a look at the store. A read may fail for one name only.
        let known = looked.iter().position(|ledger| matches!(ledger, Ok(Some(_))));
        let at = known.or_else(|| looked.iter().position(Result::is_ok)).unwrap_or_default();
        if let (Some(Ok(seen)), Some(name)) = (looked.get_mut(at), names.get(at)) {
            match self.writable(name, seen.take()).await {
                Ok(now) => *seen = now,
                Err(error) => return names.iter().map(|_| Err(error.clone())).collect(),
            }
        }
        looked
    }

    /// Reserves, and claims the grants on the basis of the ledgers read before.
    async fn reserved_many(&self, asked: Vec<(Reserve, Option<Ledger>)>) -> Vec<Result<Grant>> {
        if asked.is_empty() {
            return Vec::new();
        }
        let (asked, seen): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let granted = self.store.reserve_many(&asked).await.into_iter().zip(seen);
        let attempts: Vec<Result<Attempt>> =
            granted.map(|(grant, seen)| Ok(Attempt { grant: grant?, seen })).collect();
        let writes = asked.iter().zip(&attempts).map(|(request, attempt)| {
            let attempt = attempt.as_ref().ok()?;
            Some(Write::new(request.name.clone(), attempt.seen.clone(), self.first_claim(attempt)?))
        });
        let writes: Vec<_> = writes.collect();
        let mut written =
            self.witness.swap_many(&writes.iter().flatten().cloned().collect::<Vec<_>>()).await.into_iter();
        let first: Vec<_> = writes.iter().map(|write| write.as_ref().and_then(|_| written.next())).collect();
        let settled =
            asked.iter().zip(attempts).zip(first).map(|((request, attempt), first)| async move {
                self.settled(request, attempt?, first).await
            });
        join_all(settled).await
    }

    /// Returns the grant or its error after the first attempt to claim it. `first` is `None` if the ledger
    /// that was read before does not allow the claim.
    async fn settled(
        &self,
        request: &Reserve,
        attempt: Attempt,
        first: Option<Result<bool>>,
    ) -> Result<Grant> {
        match first {
            Some(Ok(true)) => Ok(attempt.grant),
            Some(Err(error)) => Err(self.unclaimed(&request.name, &attempt.grant, error).await),
            // The ledger may have been stale.
            Some(Ok(false)) | None => self.use_or_again(request, attempt).await,
        }
    }

    /// Removes returned ids from the ledger before the store can grant them again. After a crash between the
    /// two steps, the ids are a gap.
    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let seen = self.witness.read(&back.name).await.map_err(not_read)?;
        let Some(seen) = seen else { return Ok(false) };
        let Some(wanted) = seen.release(back.identity, back.rest) else { return Ok(false) };
        let released = self.witness.swap(&back.name, Some(&seen), &wanted).await.map_err(of_the_witness)?;
        Ok(released && self.store.give_back(back).await?)
    }
}

/// Returns a place as it is noted in ledgers: without its middle, if it has more than 100 characters.
pub fn shortened(place: &str) -> String {
    let characters: Vec<_> = place.chars().collect();
    if characters.len() <= 100 {
        return place.to_owned();
    }
    let (begin, end) = (&characters[..40], &characters[characters.len() - 57..]);
    begin.iter().chain(&['.', '.', '.']).chain(end).collect()
}

impl Store for Guarded {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let claimed = self.claimed_many(requests).await.into_iter().zip(requests);
            let named = |(outcome, request): (Result<Grant>, &Reserve)| {
                outcome.map_err(|error| error.of(&request.name).during(Operation::Reserve))
            };
            claimed.map(named).collect()
        })
    }

    idmill::store_calls!(|this| this.store =>
        create inspect inspect_many list server record swap_record list_records);
    idmill::store_calls!(reserve give_back set remove);
}
