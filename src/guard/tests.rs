//! A guarded store over a store and a witness in memory.

use std::sync::Arc;

use super::{Announced, Guarded, MemoryWitness, Witness, forget};
use crate::error::{ErrorKind, Result};
use crate::name::SequenceName;
use crate::store::{Bounds, Change, GiveBack, MemoryStore, Reserve, Store};

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
    assert_eq!(starts(&guarded, 1).await.unwrap(), 11, "above what was claimed of the removed one");
    assert_eq!(guarded.healed(), 0, "nothing went back");
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
