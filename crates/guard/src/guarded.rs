//! A store whose grants are claimed at a witness before they are used.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::witness::{is_certain, of_the_witness};
use super::{Announced, Heal, Ledger, Refusal, Witness, Write};
use idmill::__private::count;
use idmill::SequenceName;
use idmill::store::{
    Capabilities, Change, GiveBack, Grant, Identity, Reserve, SequenceInfo, Store, StoreFuture, exhausted,
};
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::{Contention, among};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum number of claims per reserve after the first attempt. If a range must not be used, another is
/// reserved.
const TRIES: usize = 8;

/// How long a rejected claim waits for a pending announcement.
const PENDING: Contention = Contention::new()
    .every(1)
    .pauses(Duration::from_millis(5), Duration::from_millis(100))
    .timeout(Duration::from_secs(2));

/// A store whose grants are used only after a [`Witness`] has recorded them.
///
/// A reserve reads the ledger, reserves from the store, and then claims the grant. The two extra round trips
/// are in the refill, so draws do not wait for them while ids are in memory. A batch of reserves waits for no
/// more round trips than a single one. While the witness is unreachable, reserves fail with
/// [`Unavailable`](ErrorKind::Unavailable) and reserve nothing. A claim with an unknown outcome makes the
/// range a gap. After a claim that definitely failed, the range is returned to the store, or is a gap if the
/// store cannot take ids back. No more ids are then reserved until the witness is writable.
///
/// If ids were claimed before and the sequence has the same incarnation and no earlier epoch, the store went
/// back in time. The store's next id is raised above all claims. [`healed`](Self::healed) counts the event,
/// an error is logged, and ids continue above the claims. A claim that reaches the witness too late, after
/// many other claims, is rejected. A late claim is neither counted nor logged, and another range is reserved.
///
/// For another incarnation, or an earlier epoch, manual action is required: reserves fail with
/// [`StoreViolation`](ErrorKind::StoreViolation).
///
/// Claimed ids stay claimed, unless they are given back. Only two other calls lower the claims, after the
/// store has confirmed them: [`set`](Store::set) with [`backwards`](Change::backwards), and
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
    healed: AtomicU64,
    /// Whether a write must prove that the witness is writable before the next reserve: a claim failed, or
    /// the store does not accept returned ids and no such write has succeeded yet.
    is_doubtful: AtomicBool,
}

/// The reason why a grant is not used.
enum Unused {
    /// Another range must be reserved.
    Again(Error),
    Failed(Error),
}

impl Guarded {
    /// Guards a store with a witness. Either may be an `Arc`.
    pub fn new(store: impl Store + 'static, witness: impl Witness + 'static) -> Self {
        let is_doubtful = AtomicBool::new(!store.capabilities().gives_back);
        let (store, witness) = (Arc::new(store), Arc::new(witness));
        Self { store, witness, healed: AtomicU64::new(0), is_doubtful }
    }

    /// Returns how many times the store was found to have gone back in time.
    pub fn healed(&self) -> u64 {
        // Relaxed: a counter that nothing else depends on.
        self.healed.load(Ordering::Relaxed)
    }

    async fn claimed(&self, request: &Reserve) -> Result<Grant> {
        // Read the witness first: a range that cannot be claimed must not be reserved.
        let seen = self.witness.read(&request.name).await.map_err(of_the_witness)?;
        let seen = self.writable(&request.name, seen).await?;
        let grant = self.store.reserve(request).await?;
        let first = match Ledger::claim(seen.as_ref(), grant.identity, grant.range) {
            Ok(wanted) => Some(self.witness.swap(&request.name, seen.as_ref(), &wanted).await),
            Err(_) => None,
        };
        self.settled(request, grant, first).await
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
            return self.witness.read(name).await.map_err(of_the_witness);
        }
        // Relaxed: as above.
        self.is_doubtful.store(false, Ordering::Relaxed);
        // Read the ledger back: a witness may add a stamp.
        self.witness.read(name).await.map_err(of_the_witness)
    }

    /// Like [`claimed`](Self::claimed), with the same number of round trips for the whole batch.
    async fn claimed_many(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let names: Vec<_> = requests.iter().map(|request| request.name.clone()).collect();
        let looked = self.looked(&names).await.into_iter().zip(requests);
        let asked = looked.map(|(seen, request)| Ok((request.clone(), seen.map_err(of_the_witness)?)));
        among(asked, ErrorKind::UnknownOutcome, async |asked| self.reserved_many(asked).await).await
    }

    /// Reads the ledgers. If it is in doubt whether the witness is writable, a write to one of them checks
    /// this.
    async fn looked(&self, names: &[SequenceName]) -> Vec<Result<Option<Ledger>>> {
        let mut looked = self.witness.read_many(names).await;
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
        let granted = self.store.reserve_many(&asked).await;
        let writes: Vec<_> = asked.iter().zip(&granted).zip(&seen).map(first_claim).collect();
        let mut written =
            self.witness.swap_many(&writes.iter().flatten().cloned().collect::<Vec<_>>()).await.into_iter();
        let first: Vec<_> = writes.iter().map(|write| write.as_ref().and_then(|_| written.next())).collect();
        let settled =
            asked.iter().zip(granted).zip(first).map(|((request, granted), first)| async move {
                self.settled(request, granted?, first).await
            });
        join_all(settled).await
    }

    /// Returns the grant or its error after the first attempt to claim it. `first` is `None` if the ledger
    /// that was read before does not allow the claim.
    async fn settled(&self, request: &Reserve, grant: Grant, first: Option<Result<bool>>) -> Result<Grant> {
        match first {
            Some(Ok(true)) => Ok(grant),
            Some(Err(error)) => Err(self.unclaimed(&request.name, &grant, error).await),
            // The ledger may have been stale.
            Some(Ok(false)) | None => self.use_or_again(request, grant).await,
        }
    }

    /// Claims the grant. If its range must not be used, reserves another.
    async fn use_or_again(&self, request: &Reserve, mut grant: Grant) -> Result<Grant> {
        let mut last = None;
        for _ in 0..TRIES {
            match self.claim(&request.name, &grant).await {
                Ok(()) => return Ok(grant),
                Err(Unused::Failed(error)) => return Err(error),
                Err(Unused::Again(error)) => last = Some(error),
            }
            grant = self.store.reserve(request).await?;
        }
        let message = "each granted range was already claimed; use larger steps, or find the other writer of \
                       this sequence";
        let error = Error::new(ErrorKind::Unavailable, message);
        Err(last.into_iter().fold(error, Error::because))
    }

    async fn claim(&self, name: &SequenceName, grant: &Grant) -> Result<(), Unused> {
        match self.try_claim(name, grant).await {
            Ok(None) => Ok(()),
            Ok(Some((refusal, announced))) => Err(self.refused(name, grant, refusal, announced).await),
            Err(error) => Err(Unused::Failed(self.unclaimed(name, grant, error).await)),
        }
    }

    /// Claims a grant. Returns `None`, or the refusal and the announcement at that time.
    async fn try_claim(
        &self,
        name: &SequenceName,
        grant: &Grant,
    ) -> Result<Option<(Refusal, Option<Announced>)>> {
        let (mut contest, mut pending) = (Contention::new().begin(), PENDING.begin());
        loop {
            let seen = self.witness.read(name).await?;
            let wanted = match Ledger::claim(seen.as_ref(), grant.identity, grant.range) {
                Ok(wanted) => wanted,
                Err(refusal) => {
                    let announced = seen.and_then(|seen| seen.announced);
                    if announced.is_some_and(Announced::is_pending) && pending.lost(None).await.is_ok() {
                        continue;
                    }
                    return Ok(Some((refusal, announced)));
                }
            };
            if self.witness.swap(name, seen.as_ref(), &wanted).await? {
                return Ok(None);
            }
            contest.lost(None).await?;
        }
    }

    /// Returns the error of a failed claim. If the witness definitely has no claim and the store accepts
    /// returned ids, the range is returned to the store.
    async fn unclaimed(&self, name: &SequenceName, grant: &Grant, error: Error) -> Error {
        if !is_certain(&error) {
            return lost(of_the_witness(error));
        }
        // Relaxed: as in `writable`.
        self.is_doubtful.store(true, Ordering::Relaxed);
        if self.store.capabilities().gives_back {
            let back = GiveBack::new(name.clone(), grant.identity, grant.range);
            if let Ok(true) = self.store.give_back(&back).await {
                return not_writable(error);
            }
        }
        lost(of_the_witness(error))
    }

    async fn refused(
        &self,
        name: &SequenceName,
        grant: &Grant,
        refusal: Refusal,
        announced: Option<Announced>,
    ) -> Unused {
        let message = match refusal {
            Refusal::Claimed { top, .. } | Refusal::Recreated { top } => {
                return self.healed_by(name, grant, top, refusal).await;
            }
            Refusal::Replaced { known } => replaced(grant, known),
            Refusal::BehindReset { known } => behind_reset(grant, known),
        };
        match self.store.inspect(name).await {
            // Others removed or reset the sequence after the grant.
            Ok(stored) if stored.as_ref().is_none_or(|stored| stored.identity != grant.identity) => {
                Unused::Again(Error::new(ErrorKind::Unavailable, message))
            }
            Ok(_) => Unused::Failed(Error::new(ErrorKind::StoreViolation, with(message, announced))),
            Err(error) => Unused::Failed(error),
        }
    }

    /// Raises the store above all claims. Logs and counts a store that went back in time.
    async fn healed_by(&self, name: &SequenceName, grant: &Grant, top: u128, refusal: Refusal) -> Unused {
        let went_back = match self.heal(name, grant, top).await {
            Ok(Heal::Raise(next)) => {
                if let Refusal::Recreated { .. } = refusal {
                    tracing::info!(sequence = %name, "ids start at {next}, above the ids of the removed sequence with this name");
                }
                matches!(refusal, Refusal::Claimed { .. })
            }
            Ok(Heal::Nothing) => matches!(refusal, Refusal::Claimed { twice: true, .. }),
            Ok(Heal::Exhausted) => return Unused::Failed(all_claimed(name, grant, refusal)),
            // Others raised or reset the sequence; the next reserve shows its new state.
            Err(error) if error.kind() == ErrorKind::Conflict => false,
            Err(error) => return Unused::Failed(error),
        };
        if went_back {
            self.report(name, grant, top);
        }
        Unused::Again(claimed_before(grant, top))
    }

    /// Raises the store above all claims. The next id is never lowered, so a late or repeated call is
    /// harmless.
    async fn heal(&self, name: &SequenceName, grant: &Grant, top: u128) -> Result<Heal> {
        let Some(info) = self.store.inspect(name).await? else { return Err(ErrorKind::Conflict.into()) };
        let heal = Heal::of(&info, grant.identity, top);
        if let Heal::Raise(next) = heal {
            // A give-back changes the ledger before the store. If the top is now lower, the store was not
            // restored.
            let claimed = self.witness.read(name).await.map_err(of_the_witness)?;
            if claimed.is_some_and(|ledger| ledger.top() < top) {
                return Err(ErrorKind::Conflict.into());
            }
            self.store.set(name, Change::new().next(next).expect(info.identity)).await?;
        }
        Ok(heal)
    }

    fn report(&self, name: &SequenceName, grant: &Grant, top: u128) {
        // Relaxed: as in `healed`.
        self.healed.fetch_add(1, Ordering::Relaxed);
        count("idmill_healed_total", &[]);
        let again = grant.range.start();
        tracing::error!(
            sequence = %name,
            "the store went back in time: it repeated ids from {again} on; none was used, and ids continue \
             from {top} or above"
        );
    }

    /// Removes returned ids from the ledger before the store can grant them again. After a crash between the
    /// two steps, the ids are a gap.
    async fn released(&self, back: &GiveBack) -> Result<bool> {
        let seen = self.witness.read(&back.name).await.map_err(of_the_witness)?;
        let Some(seen) = seen else { return Ok(false) };
        let Some(wanted) = seen.release(back.identity, back.rest) else { return Ok(false) };
        self.witness.swap(&back.name, Some(&seen), &wanted).await.map_err(of_the_witness)
    }
}

/// Returns the claim of a grant, computed from a ledger that may be stale. Returns `None` if the ledger does
/// not allow it.
fn first_claim(((request, granted), seen): ((&Reserve, &Result<Grant>), &Option<Ledger>)) -> Option<Write> {
    let grant = granted.as_ref().ok()?;
    let wanted = Ledger::claim(seen.as_ref(), grant.identity, grant.range).ok()?;
    Some(Write::new(request.name.clone(), seen.clone(), wanted))
}

fn replaced(grant: &Grant, known: Identity) -> String {
    format!(
        "the incarnation is {:016x}, the claims are for {:016x}; fix the URL, restore the store, or remove NAME \
         through the guard",
        grant.identity.incarnation, known.incarnation
    )
}

fn behind_reset(grant: &Grant, known: Identity) -> String {
    format!(
        "the store lost a reset or revoke: it has epoch {}, the claims {}; restore a later backup, or reset the \
         sequence again",
        grant.identity.epoch, known.epoch
    )
}

/// Adds the pending announcement, a possible cause, to an error message.
fn with(message: String, announced: Option<Announced>) -> String {
    match announced.filter(|announced| announced.is_pending()) {
        Some(announced) => format!("{message}; {}", announced.repeated()),
        None => message,
    }
}

fn all_claimed(name: &SequenceName, grant: &Grant, refusal: Refusal) -> Error {
    let max = grant.bounds.max();
    if let Refusal::Claimed { .. } = refusal {
        return exhausted(name, max);
    }
    let message = format!(
        "a removed sequence used all ids up to {max}; raise `max`, or if none is in use, run `idmill \
         remove NAME --yes --forget`"
    );
    Error::new(ErrorKind::Exhausted, message)
}

fn claimed_before(grant: &Grant, top: u128) -> Error {
    let message = format!(
        "the store granted ids from {} on, but ids below {top} were already claimed; the grant was not \
         used",
        grant.range.start()
    );
    Error::new(ErrorKind::StoreViolation, message)
}

/// Nothing was reserved, or the range was returned.
fn not_writable(error: Error) -> Error {
    let kind = if is_certain(&error) { error.kind() } else { ErrorKind::Unavailable };
    Error::new(kind, "the witness that guards this store is not writable; no id was reserved").because(error)
}

/// The store granted a range that is not used. The caller counts it as a gap.
fn lost(error: Error) -> Error {
    Error::new(
        ErrorKind::UnknownOutcome,
        "a range was reserved, but its claim is not confirmed; the range is a gap",
    )
    .because(error)
}

impl Store for Guarded {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let outcome = self.claimed(request).await;
            outcome.map_err(|error| error.of(&request.name).during(Operation::Reserve))
        })
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

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            match self.released(back).await {
                Ok(true) => self.store.give_back(back).await,
                outcome => outcome.map_err(|error| error.of(&back.name).during(Operation::GiveBack)),
            }
        })
    }

    idmill::store_calls!(|this| this.store =>
        create inspect inspect_many list server record swap_record list_records);

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            self.changed(name, change).await.map_err(|error| error.of(name).during(Operation::Set))
        })
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        Box::pin(
            async move { self.removed(name).await.map_err(|error| error.of(name).during(Operation::Remove)) },
        )
    }
}
