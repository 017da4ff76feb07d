//! A store whose grants are claimed at a witness before they are used.

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;

use super::{Heal, Ledger, Refusal, Witness, Write};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::store::kit::Contention;
use crate::store::{Capabilities, Change, GiveBack, Grant, Reserve, Store, StoreFuture, exhausted};
use crate::sync::{AtomicU64, Ordering};

/// How often a reserve is repeated whose ids were claimed before: once after the store was raised, and again
/// where other processes were faster each time.
const TRIES: usize = 8;

/// A store whose grants are used only after a [`Witness`] has recorded them.
///
/// A reserve reads what the witness has, then reserves from the store, then claims what was granted: two more
/// round trips, all of them in the refill, so that draws do not wait for them while there are ids in memory.
/// A batch of reserves has no more. While the witness is away, reserves fail with
/// [`Unavailable`](ErrorKind::Unavailable) and reserve nothing. A claim whose outcome is unknown makes the
/// range a gap.
///
/// Where ids were claimed before and the sequence is still the same, the store has gone back in time: its
/// next id is raised above all that was claimed, which is counted in [`healed`](Self::healed) and logged as
/// an error, and ids go on from there. (A claim that came too late, after many others, is refused as well; it
/// is neither counted nor logged, and another range is reserved.) Where it is another incarnation, or one
/// from before a reset, a person has to decide: reserves fail with
/// [`StoreViolation`](ErrorKind::StoreViolation).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// use idmill::guard::{Guarded, MemoryWitness};
/// use idmill::store::{MemoryStore, Store};
/// use idmill::Sequences;
/// use std::sync::Arc;
///
/// let store = MemoryStore::new();
/// let witness = Arc::new(MemoryWitness::new()); // in earnest, another server or a `FileWitness`
/// let guarded = || Arc::new(Guarded::new(Arc::new(store.clone()), witness.clone())) as Arc<dyn Store>;
///
/// let orders = Sequences::new(guarded())?.sequence::<u64>("orders").step(10).await?;
/// let backup = store.snapshot();
/// let last = orders.next().await?;
/// store.restore(&backup); // the store has forgotten what it granted
///
/// let orders = Sequences::new(guarded())?.sequence::<u64>("orders").step(10).await?;
/// assert!(orders.next().await? > last);
/// # Ok(()) }
/// ```
pub struct Guarded {
    store: Arc<dyn Store>,
    witness: Arc<dyn Witness>,
    healed: AtomicU64,
}

/// Why a grant is not used.
enum Unused {
    /// Another is to be reserved.
    Again(Error),
    Failed(Error),
}

impl Guarded {
    /// Guards a store by a witness.
    pub fn new(store: Arc<dyn Store>, witness: Arc<dyn Witness>) -> Self {
        Self { store, witness, healed: AtomicU64::new(0) }
    }

    /// Returns how often the store was found to have gone back in time, and ids went on above what was
    /// claimed.
    pub fn healed(&self) -> u64 {
        // Relaxed: a count, which nothing else depends on.
        self.healed.load(Ordering::Relaxed)
    }

    async fn claimed(&self, request: &Reserve) -> Result<Grant> {
        // Nothing is reserved that could not be claimed.
        let seen = self.witness.read(&request.name).await.map_err(of_the_witness)?;
        let grant = self.store.reserve(request).await?;
        let first = match Ledger::claim(seen.as_ref(), grant.identity, grant.range) {
            Ok(wanted) => Some(self.witness.swap(&request.name, seen.as_ref(), &wanted).await),
            Err(_) => None,
        };
        self.settled(request, grant, first).await
    }

    /// As [`claimed`](Self::claimed), with as many round trips for all of them as for one.
    async fn claimed_many(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let names: Vec<_> = requests.iter().map(|request| request.name.clone()).collect();
        let looked = self.witness.read_many(&names).await;
        let known = requests.iter().zip(&looked);
        let (asked, seen): (Vec<_>, Vec<_>) = known
            .filter_map(|(request, ledger)| Some((request.clone(), ledger.as_ref().ok()?.clone())))
            .unzip();
        let mut claimed = self.reserved_many(&asked, &seen).await.into_iter();
        let answer = |looked: Result<_>| match looked {
            Ok(_) => claimed.next().expect("one answer to each request"),
            Err(error) => Err(of_the_witness(error)),
        };
        looked.into_iter().map(answer).collect()
    }

    /// Reserves, and claims what was granted: `seen` are the ledgers of before.
    async fn reserved_many(&self, asked: &[Reserve], seen: &[Option<Ledger>]) -> Vec<Result<Grant>> {
        if asked.is_empty() {
            return Vec::new();
        }
        let granted = self.store.reserve_many(asked).await;
        let writes: Vec<_> = asked.iter().zip(&granted).zip(seen).map(first_claim).collect();
        let mut written =
            self.witness.swap_many(&writes.iter().flatten().cloned().collect::<Vec<_>>()).await.into_iter();
        let first: Vec<_> = writes.iter().map(|write| write.as_ref().and_then(|_| written.next())).collect();
        let settled =
            asked.iter().zip(granted).zip(first).map(|((request, granted), first)| async move {
                self.settled(request, granted?, first).await
            });
        join_all(settled).await
    }

    /// What comes of a grant, by what came of the first attempt to claim it: `None` where the ledger that was
    /// seen before speaks against it.
    async fn settled(&self, request: &Reserve, grant: Grant, first: Option<Result<bool>>) -> Result<Grant> {
        match first {
            Some(Ok(true)) => Ok(grant),
            Some(Err(error)) => Err(lost(of_the_witness(error))),
            // That ledger may be out of date.
            Some(Ok(false)) | None => self.use_or_again(request, grant).await,
        }
    }

    /// Claims what was granted; reserves another range in place of one that must not be used.
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
        let message = "the ids that the store granted were claimed before, each time; use larger steps, or see what else \
                       changes this sequence";
        let error = Error::new(ErrorKind::Unavailable, message);
        Err(match last {
            Some(last) => error.because(last),
            None => error,
        })
    }

    async fn claim(&self, name: &SequenceName, grant: &Grant) -> Result<(), Unused> {
        let failed = |error| Unused::Failed(lost(of_the_witness(error)));
        let mut contest = Contention::new().begin();
        loop {
            let seen = self.witness.read(name).await.map_err(failed)?;
            let wanted = match Ledger::claim(seen.as_ref(), grant.identity, grant.range) {
                Ok(wanted) => wanted,
                Err(refusal) => return Err(self.refused(name, grant, refusal).await),
            };
            if self.witness.swap(name, seen.as_ref(), &wanted).await.map_err(failed)? {
                return Ok(());
            }
            contest.lost(None).await.map_err(failed)?;
        }
    }

    async fn refused(&self, name: &SequenceName, grant: &Grant, refusal: Refusal) -> Unused {
        let message = match refusal {
            Refusal::Claimed { top, twice } => match self.heal(name, grant, top, twice).await {
                Ok(()) => return Unused::Again(claimed_before(grant, top)),
                Err(error) => return Unused::Failed(error),
            },
            Refusal::Replaced { known } => format!(
                "the store has another sequence of this name ({:016x}) than the one that ids were claimed of ({:016x}): it was \
                 emptied, restored to before the sequence was created, or is another store; nothing of it is used. Correct the \
                 store's URL, or restore it; if the new one is meant, remove it through the guard and create it again",
                grant.identity.incarnation, known.incarnation
            ),
            Refusal::BehindReset { known } => format!(
                "the store is back behind a reset of this sequence: it is at epoch {}, and ids were claimed at epoch {}; \
                 nothing of it is used. Restore a later backup, or reset the sequence again",
                grant.identity.epoch, known.epoch
            ),
        };
        Unused::Failed(Error::new(ErrorKind::StoreViolation, message))
    }

    /// Raises the store above all that was claimed, unless it is there already. Only ever raises, so that a
    /// late or repeated one does no harm.
    async fn heal(&self, name: &SequenceName, grant: &Grant, top: u128, twice: bool) -> Result<()> {
        let Some(info) = self.store.inspect(name).await? else { return Ok(()) };
        let next = match Heal::of(&info, grant.identity, top) {
            Heal::Nothing => {
                if twice {
                    self.report(name, grant, top);
                }
                return Ok(());
            }
            Heal::Exhausted => return Err(exhausted(name, info.bounds.max())),
            Heal::Raise(next) => next,
        };
        let change = Change { next: Some(next), expect: Some(info.identity), ..Change::default() };
        match self.store.set(name, change).await {
            Ok(_) => {
                self.report(name, grant, top);
                Ok(())
            }
            // Others raised it, or reset it: the next reserve shows what it is.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn report(&self, name: &SequenceName, grant: &Grant, top: u128) {
        // Relaxed: as in `healed`.
        self.healed.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::counter!("idmill_healed_total", "sequence" => name.to_string()).increment(1);
        let again = grant.range.start();
        tracing::error!(
            sequence = %name,
            "the store went back in time: it granted ids from {again} on again, of which none was used; ids go on from {top}, above \
             all that were handed out"
        );
    }

    /// Has the witness let go of what is given back, before the store can grant it again. After a crash
    /// between the two it is a gap.
    async fn released(&self, back: &GiveBack) -> Result<bool> {
        let seen = self.witness.read(&back.name).await.map_err(of_the_witness)?;
        let Some(seen) = seen else { return Ok(false) };
        let Some(wanted) = seen.release(back.identity, back.rest) else { return Ok(false) };
        self.witness.swap(&back.name, Some(&seen), &wanted).await.map_err(of_the_witness)
    }

    /// Tells the witness that another incarnation may follow.
    async fn announce_removal(&self, name: &SequenceName) -> Result<()> {
        let mut contest = Contention::new().begin();
        while let Some(seen) = self.witness.read(name).await.map_err(of_the_witness)? {
            if seen.removed
                || self.witness.swap(name, Some(&seen), &seen.remove()).await.map_err(of_the_witness)?
            {
                break;
            }
            contest.lost(None).await?;
        }
        Ok(())
    }

    async fn removed(&self, name: &SequenceName) -> Result<bool> {
        self.announce_removal(name).await?;
        let removed = self.store.remove(name).await?;
        if removed {
            // Whoever claimed in between took the announcement back.
            self.announce_removal(name).await?;
        }
        Ok(removed)
    }
}

/// How what was granted is claimed, by a ledger that may be out of date; `None` if that speaks against it.
fn first_claim(((request, granted), seen): ((&Reserve, &Result<Grant>), &Option<Ledger>)) -> Option<Write> {
    let grant = granted.as_ref().ok()?;
    let wanted = Ledger::claim(seen.as_ref(), grant.identity, grant.range).ok()?;
    Some(Write::new(request.name.clone(), seen.clone(), wanted))
}

fn claimed_before(grant: &Grant, top: u128) -> Error {
    let message = format!(
        "ids from {} on were granted, and all below {top} were claimed before; none of them is used",
        grant.range.start()
    );
    Error::new(ErrorKind::StoreViolation, message)
}

fn of_the_witness(error: Error) -> Error {
    Error::new(error.kind(), "the witness that guards this store could not be asked").because(error)
}

/// The store has granted, and the range is not used: it is a gap, which the caller counts.
fn lost(error: Error) -> Error {
    Error::new(ErrorKind::UnknownOutcome, "a range was reserved and could not be claimed; it is a gap")
        .because(error)
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("store", &self.store)
            .field("witness", &self.witness)
            .finish_non_exhaustive()
    }
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

    crate::store_calls!(|this| this.store =>
        create inspect inspect_many list set server record swap_record list_records);

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        Box::pin(
            async move { self.removed(name).await.map_err(|error| error.of(name).during(Operation::Remove)) },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::MemoryWitness;
    use crate::store::{Bounds, MemoryStore};

    fn guarded() -> (MemoryStore, MemoryWitness, Guarded) {
        let (store, witness) = (MemoryStore::new(), MemoryWitness::new());
        (store.clone(), witness.clone(), Guarded::new(Arc::new(store), Arc::new(witness)))
    }

    fn orders(count: u64) -> Reserve {
        Reserve::new(name(), count).create(Bounds::of::<u64>())
    }

    fn name() -> SequenceName {
        SequenceName::new("orders").unwrap()
    }

    async fn starts(store: &Guarded, count: u64) -> Result<u64> {
        Ok(store.reserve(&orders(count)).await?.range.start())
    }

    #[tokio::test]
    async fn a_store_that_went_back_is_raised_above_what_was_claimed() {
        let (store, _, guarded) = guarded();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        let backup = store.snapshot();
        assert_eq!(starts(&guarded, 90).await.unwrap(), 11);
        store.restore(&backup);
        assert_eq!(starts(&guarded, 5).await.unwrap(), 101);
        assert_eq!(guarded.healed(), 1);
        // Found also where the store is where it was once it has granted the same again.
        let one = store.snapshot();
        assert_eq!(starts(&guarded, 5).await.unwrap(), 106);
        store.restore(&one);
        assert_eq!(starts(&guarded, 5).await.unwrap(), 111);
        assert_eq!(guarded.healed(), 2);
        // As many at once, of which two are of one ledger.
        store.restore(&backup);
        let many = guarded.reserve_many(&[orders(1), orders(1)]).await;
        let many: Vec<_> = many.into_iter().map(|grant| grant.unwrap().range.start()).collect();
        assert!(many.iter().all(|start| *start >= 116), "{many:?}");
    }

    #[tokio::test]
    async fn a_store_that_was_emptied_is_refused_and_a_removal_is_not() {
        let (store, _, guarded) = guarded();
        let nothing = store.snapshot();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        store.restore(&nothing);
        let refused = starts(&guarded, 1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StoreViolation, "{refused}");
        assert!(refused.to_string().contains("another sequence of this name"), "{refused}");
        assert!(guarded.remove(&name()).await.unwrap());
        assert_eq!(starts(&guarded, 1).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_reset_is_followed_and_what_is_behind_it_is_refused() {
        let (store, _, guarded) = guarded();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        let backup = store.snapshot();
        guarded.set(&name(), Change::new().next(1).backwards(true)).await.unwrap();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        store.restore(&backup);
        let refused = starts(&guarded, 1).await.unwrap_err();
        assert!(refused.to_string().contains("back behind a reset"), "{refused}");
        assert_eq!(refused.kind(), ErrorKind::StoreViolation);
    }

    #[tokio::test]
    async fn while_the_witness_is_away_nothing_is_reserved() {
        let (store, witness, guarded) = guarded();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        witness.set_away(true);
        let away = starts(&guarded, 10).await.unwrap_err();
        assert_eq!(away.kind(), ErrorKind::Unavailable, "{away}");
        let failed = guarded.reserve_many(&[orders(1), orders(1)]).await;
        assert!(
            failed
                .iter()
                .all(|grant| grant.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable))
        );
        assert_eq!(store.reserves(), 1);
        witness.set_away(false);
        assert_eq!(starts(&guarded, 10).await.unwrap(), 11);
    }

    #[tokio::test]
    async fn a_claim_whose_outcome_is_unknown_is_a_gap() {
        let (_, witness, guarded) = guarded();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        witness.lose_replies(1);
        let lost = starts(&guarded, 10).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::UnknownOutcome, "{lost}");
        assert_eq!(starts(&guarded, 10).await.unwrap(), 21);
    }

    #[tokio::test]
    async fn a_batch_is_claimed_as_one_and_each_answer_is_its_own() {
        let (store, witness, guarded) = guarded();
        let users = Reserve::new(SequenceName::new("users").unwrap(), 5).create(Bounds::of::<u64>());
        let missing = Reserve::new(SequenceName::new("missing").unwrap(), 5);
        let batch = [orders(10), missing, users];
        let answers = guarded.reserve_many(&batch).await;
        assert_eq!(store.reserves(), 1);
        assert_eq!(answers[0].as_ref().unwrap().range.start(), 1);
        assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(answers[2].as_ref().unwrap().range.len(), 5);
        assert_eq!(witness.ledger("orders").unwrap().top(), 11);
        assert_eq!(witness.ledger("users").unwrap().top(), 6);
        assert!(guarded.reserve_many(&[]).await.is_empty());
    }

    #[tokio::test]
    async fn what_is_given_back_can_be_claimed_again() {
        let (_, witness, guarded) = guarded();
        let grant = guarded.reserve(&orders(10)).await.unwrap();
        let rest = crate::range::Range::new(4, 7).unwrap();
        assert!(guarded.give_back(&GiveBack::new(name(), grant.identity, rest)).await.unwrap());
        assert_eq!(witness.ledger("orders").unwrap().top(), 4);
        assert_eq!(starts(&guarded, 10).await.unwrap(), 4);
        assert_eq!(guarded.healed(), 0);
    }

    #[tokio::test]
    async fn a_witness_that_went_back_knows_less_and_that_is_all() {
        let (_, witness, guarded) = guarded();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        let before = witness.ledger("orders");
        assert_eq!(starts(&guarded, 10).await.unwrap(), 11);
        witness.set_ledger(&name(), before);
        assert_eq!(starts(&guarded, 10).await.unwrap(), 21);
        witness.set_ledger(&name(), None);
        assert_eq!(starts(&guarded, 10).await.unwrap(), 31);
    }
}
