//! A guarded store with a store and a witness in memory.

mod events;
mod raises;
mod refusals;
mod trips;

use std::sync::Arc;

use super::{Announced, Guarded, Ledger, Ledgers, MemoryWitness, Witness, forget, shortened};
use idmill::SequenceName;
use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, MemoryStore, Page, Reserve, SequenceInfo, Store,
    StoreFuture,
};
use idmill::{ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};

fn guarded() -> (MemoryStore, MemoryWitness, Guarded) {
    let (store, witness) = (MemoryStore::new(), MemoryWitness::new());
    (store.clone(), witness.clone(), Guarded::new(store, witness))
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
async fn restored_store_is_raised_above_the_claims() {
    let (store, _, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    let backup = store.snapshot();
    assert_eq!(starts(&guarded, 90).await.unwrap(), 11);
    store.restore(&backup);
    assert_eq!(starts(&guarded, 5).await.unwrap(), 101);
    assert_eq!(guarded.healed(), 1);
    // A restore is also detected after the store has granted the same ids again.
    let one = store.snapshot();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 106);
    store.restore(&one);
    assert_eq!(starts(&guarded, 5).await.unwrap(), 111);
    assert_eq!(guarded.healed(), 2);
    // A batch in which two requests share a ledger also detects a restore.
    store.restore(&backup);
    let many = guarded.reserve_many(&[orders(1), orders(1)]).await;
    let many: Vec<_> = many.into_iter().map(|grant| grant.unwrap().range.start()).collect();
    assert!(many.iter().all(|start| *start >= 116), "{many:?}");
}

#[tokio::test]
async fn emptied_store_is_rejected_and_a_removal_is_accepted() {
    let (store, _, guarded) = guarded();
    let nothing = store.snapshot();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    store.restore(&nothing);
    let refused = starts(&guarded, 1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StoreViolation, "{refused}");
    assert!(refused.to_string().contains("fix the URL, restore the store, or"), "{refused}");
    assert!(guarded.remove(&name(), None).await.unwrap());
    assert_eq!(starts(&guarded, 1).await.unwrap(), 11, "above the claims of the removed sequence");
    assert_eq!(guarded.healed(), 0, "nothing went back");
}

#[tokio::test]
async fn reset_is_followed_and_older_epochs_are_rejected() {
    let (store, _, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    let backup = store.snapshot();
    guarded.set(&name(), Change::new().next(1).backwards(true)).await.unwrap();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    store.restore(&backup);
    let (before, next) = (store.reserves(), store.inspect(&name()).await.unwrap().unwrap().next);
    for _ in 0..2 {
        let refused = starts(&guarded, 1).await.unwrap_err();
        assert!(refused.to_string().contains("lost a reset"), "{refused}");
        assert_eq!((refused.kind(), refused.gap()), (ErrorKind::StoreViolation, 0));
    }
    assert_eq!(store.reserves(), before + 1, "the refusal is remembered");
    assert_eq!(store.inspect(&name()).await.unwrap().unwrap().next, next, "the range went back");
}

#[tokio::test]
async fn unreachable_witness_prevents_reserves() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    witness.set_away(true);
    let away = starts(&guarded, 10).await.unwrap_err();
    assert_eq!(away.kind(), ErrorKind::Unavailable, "{away}");
    let failed = guarded.reserve_many(&[orders(1), orders(1)]).await;
    assert!(
        failed.iter().all(|grant| grant.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable))
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
async fn returned_ids_can_be_claimed_again() {
    let (_, witness, guarded) = guarded();
    let grant = guarded.reserve(&orders(10)).await.unwrap();
    let rest = idmill::IdRange::new(4, 7).unwrap();
    assert!(guarded.give_back(&GiveBack::new(name(), grant.identity, rest)).await.unwrap());
    assert_eq!(witness.ledger("orders").unwrap().top(), 4);
    assert_eq!(starts(&guarded, 10).await.unwrap(), 4);
    assert_eq!(guarded.healed(), 0);
}

#[tokio::test]
async fn outdated_witness_does_not_block_reserves() {
    let (_, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    let before = witness.ledger("orders");
    assert_eq!(starts(&guarded, 10).await.unwrap(), 11);
    witness.set_ledger(&name(), before);
    assert_eq!(starts(&guarded, 10).await.unwrap(), 21);
    witness.set_ledger(&name(), None);
    assert_eq!(starts(&guarded, 10).await.unwrap(), 31);
}

#[tokio::test]
async fn revocation_keeps_what_was_claimed() {
    let (store, _, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    let backup = store.snapshot();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 6);
    store.restore(&backup);
    guarded.set(&name(), Change::new().revoke(true)).await.unwrap();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 11);
    assert_eq!(guarded.healed(), 1);
}

#[tokio::test]
async fn unannounced_reset_is_undone() {
    let (store, _, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    store.set(&name(), Change::new().next(1).backwards(true)).await.unwrap();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 11);
}

#[tokio::test]
async fn set_backwards_of_a_restored_store_is_followed() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    let backup = store.snapshot();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 6);
    store.restore(&backup);
    // This change raises the store but lowers the ledger, so the epoch must change.
    let after = guarded.set(&name(), Change::new().next(8).backwards(true)).await.unwrap();
    assert_eq!(after.identity.epoch, 1);
    assert_eq!(witness.ledger("orders").unwrap().top(), 8);
    assert_eq!(starts(&guarded, 5).await.unwrap(), 8);
    assert_eq!(guarded.healed(), 0);
}

/// A store that rejects every change, or loses its reply.
#[derive(Debug)]
struct Stubborn {
    store: MemoryStore,
    kind: ErrorKind,
}

impl Store for Stubborn {
    fn set<'a>(&'a self, _: &'a SequenceName, _: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async { Err(self.kind.into()) })
    }

    fn remove<'a>(&'a self, _: &'a SequenceName, _: Option<Identity>) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async { Err(self.kind.into()) })
    }

    idmill::store_calls!(|this| this.store => capabilities reserve give_back create inspect list);
}

#[tokio::test]
async fn rejected_change_is_withdrawn_and_unknown_stays_pending() {
    for (kind, is_pending) in [(ErrorKind::Witness, false), (ErrorKind::UnknownOutcome, true)] {
        let (store, witness, guarded) = guarded();
        assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
        let stubborn = Stubborn { store: store.clone(), kind };
        let stubborn = Guarded::new(stubborn, witness.clone());
        let announced = || witness.ledger("orders").unwrap().announced;
        let reset = stubborn.set(&name(), Change::new().next(1).backwards(true)).await;
        assert_eq!(reset.unwrap_err().kind(), kind);
        assert_eq!(announced(), is_pending.then_some(Announced::Resetting { start: 1 }));
        assert_eq!(stubborn.remove(&name(), None).await.unwrap_err().kind(), kind);
        assert_eq!(announced(), is_pending.then_some(Announced::Removing));
        // A removal that was withdrawn, or is still pending, does not permit a new sequence.
        store.remove(&name(), None).await.unwrap();
        let refused = starts(&guarded, 1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StoreViolation, "{refused}");
        assert_eq!(
            refused.to_string().contains("repeat `idmill remove NAME --yes`"),
            is_pending,
            "{refused}"
        );
        assert!(guarded.remove(&name(), None).await.unwrap());
        assert_eq!(starts(&guarded, 1).await.unwrap(), 6);
    }
}

#[tokio::test]
async fn change_supersedes_what_is_pending() {
    let (_, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    witness.set_ledger(&name(), witness.ledger("orders").unwrap().removing(None));
    guarded.set(&name(), Change::new().revoke(true)).await.unwrap();
    assert_eq!(witness.ledger("orders").unwrap().announced, None);
}

#[tokio::test]
async fn recreated_sequence_starts_above_the_removed_one() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    assert!(guarded.remove(&name(), None).await.unwrap());
    store.create(&name(), Bounds::of::<u64>()).await.unwrap();
    let others: Vec<_> = (0..3).map(|_| Guarded::new(store.clone(), witness.clone())).collect();
    for (other, start) in others.iter().zip([11, 14, 17]) {
        assert_eq!(starts(other, 3).await.unwrap(), start);
        assert_eq!(other.healed(), 0);
    }
    assert!(!forget(&witness, &name()).await.unwrap(), "it is in use");
    assert!(guarded.remove(&name(), None).await.unwrap());
    assert!(forget(&witness, &name()).await.unwrap());
    assert_eq!(starts(&guarded, 3).await.unwrap(), 1);
}

#[tokio::test]
async fn recreated_sequence_below_the_claims_is_rejected() {
    let (store, _, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    assert!(guarded.remove(&name(), None).await.unwrap());
    store.create(&name(), Bounds::new(1, 9).unwrap()).await.unwrap();
    let error = guarded.reserve(&Reserve::new(name(), 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(error.to_string().contains("--forget"), "{error}");
}

#[tokio::test]
async fn removal_of_an_unclaimed_sequence_is_known() {
    let (store, witness, guarded) = guarded();
    store.create(&name(), Bounds::of::<u64>()).await.unwrap();
    store.reserve(&orders(20)).await.unwrap();
    assert!(guarded.remove(&name(), None).await.unwrap());
    assert!(witness.ledger("orders").unwrap().is_removed());
    assert_eq!(starts(&guarded, 1).await.unwrap(), 21);
}

#[tokio::test]
async fn failed_claim_gives_the_range_back() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    witness.set_read_only(true);
    for reserves in [2, 2, 2] {
        let error = starts(&guarded, 100_000).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Witness, "{error}");
        assert_eq!(store.inspect(&name()).await.unwrap().unwrap().next, Some(11));
        assert_eq!(store.reserves(), reserves, "only the first request reserves before its claim fails");
    }
    for error in guarded.reserve_many(&[orders(5), orders(5)]).await {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Witness);
    }
    assert_eq!(store.reserves(), 2);
    witness.set_read_only(false);
    assert_eq!(starts(&guarded, 10).await.unwrap(), 11);
    assert_eq!(guarded.healed(), 0);
}

#[tokio::test]
async fn failed_claims_of_a_batch_give_their_ranges_back() {
    let (store, witness, guarded) = guarded();
    witness.set_read_only(true);
    let users = Reserve::new(SequenceName::new("users").unwrap(), 5).create(Bounds::of::<u64>());
    for error in guarded.reserve_many(&[orders(5), users]).await {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Witness);
    }
    for stored in store.list_all().await.unwrap() {
        assert_eq!(stored.next, Some(1));
    }
}

/// A store that does not accept returned ids.
#[derive(Debug)]
struct Keeping(MemoryStore);

impl Store for Keeping {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().gives_back(false)
    }

    idmill::store_calls!(|this| this.0 => reserve create inspect list set remove);
}

#[tokio::test]
async fn witness_is_tested_before_a_store_without_give_back() {
    let (store, witness) = (MemoryStore::new(), MemoryWitness::new());
    let guarded = || Guarded::new(Arc::new(Keeping(store.clone())), witness.clone());
    assert_eq!(starts(&guarded(), 10).await.unwrap(), 1);
    witness.set_read_only(true);
    assert_eq!(starts(&guarded(), 100_000).await.unwrap_err().kind(), ErrorKind::Witness);
    assert_eq!(store.reserves(), 1);
    witness.set_read_only(false);
    assert_eq!(starts(&guarded(), 10).await.unwrap(), 11);
}

/// A witness that cannot read one ledger.
#[derive(Debug)]
struct Unreadable(MemoryWitness);

impl Witness for Unreadable {
    fn read<'a>(&'a self, of: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        if of.as_str() == "broken" {
            return Box::pin(async { Err(ErrorKind::StoreViolation.into()) });
        }
        self.0.read(of)
    }

    fn swap<'a>(
        &'a self,
        of: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        self.0.swap(of, seen, wanted)
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        self.0.list(page)
    }
}

#[tokio::test]
async fn witness_is_tested_although_one_ledger_is_unreadable() {
    let (store, witness) = (MemoryStore::new(), MemoryWitness::new());
    store.create(&name(), Bounds::of::<u64>()).await.unwrap();
    let guarded = Guarded::new(Arc::new(Keeping(store.clone())), Unreadable(witness.clone()));
    witness.set_read_only(true);
    let broken = Reserve::new(SequenceName::new("broken").unwrap(), 5).create(Bounds::of::<u64>());
    let outcomes = guarded.reserve_many(&[broken, orders(5)]).await;
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert_eq!(store.reserves(), 0, "ids that cannot be claimed were reserved");
}

/// A store in which others revoke the sequence and reserve right after the first grant.
#[derive(Debug)]
struct Late {
    store: MemoryStore,
    other: Guarded,
    is_first: AtomicBool,
}

impl Store for Late {
    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let grant = self.store.reserve(request).await;
            if self.is_first.swap(false, Ordering::Relaxed) {
                self.store.set(&name(), Change::new().revoke(true)).await?;
                self.other.reserve(request).await?;
            }
            grant
        })
    }

    idmill::store_calls!(|this| this.store => capabilities give_back create inspect list set remove);
}

#[tokio::test]
async fn grant_of_an_earlier_epoch_is_reserved_again() {
    let (store, witness, other) = guarded();
    assert_eq!(starts(&other, 10).await.unwrap(), 1);
    let late = Late { store, other, is_first: AtomicBool::new(true) };
    let guarded = Guarded::new(late, witness);
    assert_eq!(
        starts(&guarded, 10).await.unwrap(),
        31,
        "11 is of the old epoch, and `other` has reserved 21"
    );
    assert_eq!(guarded.healed(), 0);
}

#[tokio::test(start_paused = true)]
async fn claim_waits_for_an_administrator() {
    for is_confirmed in [true, false] {
        let (store, witness, guarded) = guarded();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        let known = witness.ledger("orders").unwrap();
        let pending = known.resetting(known.identity, 1).unwrap();
        witness.set_ledger(&name(), Some(pending.clone()));
        let after = store.set(&name(), Change::new().next(1).backwards(true)).await.unwrap();
        let confirms = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            if is_confirmed {
                witness.set_ledger(&name(), pending.reset(known.identity, after.identity, 1));
            }
        };
        let (start, ()) = futures_util::future::join(starts(&guarded, 10), confirms).await;
        assert_eq!(start.unwrap(), if is_confirmed { 1 } else { 11 });
    }
}

/// Another process claims between the grant and the claim, and returns ids before the store is read.
#[derive(Debug)]
struct GivesBack {
    store: MemoryStore,
    witness: MemoryWitness,
    is_reserved: AtomicBool,
    is_back: AtomicBool,
}

impl GivesBack {
    fn other(&self) -> Guarded {
        Guarded::new(self.store.clone(), self.witness.clone())
    }
}

impl Store for GivesBack {
    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let grant = self.store.reserve(request).await;
            if !self.is_reserved.swap(true, Ordering::Relaxed) {
                assert_eq!(starts(&self.other(), 10).await.unwrap(), 11);
            }
            grant
        })
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async move {
            if !self.is_back.swap(true, Ordering::Relaxed) {
                let identity = self.store.inspect(name).await?.unwrap().identity;
                let rest = idmill::IdRange::new(15, 6).unwrap();
                assert!(self.other().give_back(&GiveBack::new(name.clone(), identity, rest)).await?);
            }
            self.store.inspect(name).await
        })
    }

    idmill::store_calls!(|this| this.store => capabilities give_back create list set remove);
}

#[tokio::test]
async fn give_back_during_a_check_is_not_a_restore() {
    let (store, witness, _) = guarded();
    let store =
        GivesBack { store, witness: witness.clone(), is_reserved: false.into(), is_back: false.into() };
    let guarded = Guarded::new(store, witness);
    assert_eq!(starts(&guarded, 10).await.unwrap(), 15);
    assert_eq!(guarded.healed(), 0);
}
