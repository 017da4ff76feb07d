//! Ranges that are refused, and a witness that fails.

use super::*;
use crate::claim::Attempt;

#[tokio::test]
async fn refused_ranges_go_back_and_no_more_are_reserved() {
    for gives_back in [true, false] {
        let (store, witness) = (MemoryStore::new(), MemoryWitness::new());
        let nothing = store.snapshot();
        let first = Guarded::new(store.clone(), witness.clone());
        assert_eq!(starts(&first, 10).await.unwrap(), 1);
        store.restore(&nothing);
        let guarded = if gives_back {
            Guarded::new(store.clone(), witness.clone())
        } else {
            Guarded::new(Keeping(store.clone()), witness.clone())
        };
        let before = store.reserves();
        let gaps: Vec<_> = [starts(&guarded, 100).await, starts(&guarded, 100).await]
            .map(|refused| refused.unwrap_err())
            .iter()
            .map(|refused| (refused.kind(), refused.gap()))
            .collect();
        let gap = if gives_back { 0 } else { 100 };
        assert_eq!(gaps, [(ErrorKind::StoreViolation, gap), (ErrorKind::StoreViolation, 0)]);
        assert_eq!(store.reserves(), before + 1, "the refusal is remembered");
        let many = guarded.reserve_many(&[orders(100)]).await;
        assert_eq!(many[0].as_ref().unwrap_err().kind(), ErrorKind::StoreViolation);
        assert_eq!(store.reserves(), before + 1);
        let next = store.inspect(&name()).await.unwrap().unwrap().next;
        assert_eq!(next, Some(1 + gap));
        assert!(guarded.remove(&name(), None).await.unwrap());
        assert_eq!(starts(&guarded, 1).await.unwrap(), 101.min(11 + gap));
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_under_a_pending_removal_is_remembered() {
    let (store, witness, guarded) = guarded();
    let nothing = store.snapshot();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    witness.set_ledger(&name(), witness.ledger("orders").unwrap().removing(None));
    store.restore(&nothing);
    let before = store.reserves();
    for _ in 0..2 {
        assert_eq!(starts(&guarded, 10).await.unwrap_err().kind(), ErrorKind::StoreViolation);
        assert_eq!(store.reserves(), before + 1);
    }
}

#[tokio::test]
async fn refusal_ends_when_the_ledger_changes() {
    let (store, witness, guarded) = guarded();
    let nothing = store.snapshot();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    store.restore(&nothing);
    for _ in 0..2 {
        assert_eq!(starts(&guarded, 10).await.unwrap_err().kind(), ErrorKind::StoreViolation);
    }
    // A person removes the ledger. The sequence stays the same.
    witness.set_ledger(&name(), None);
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn late_claim_is_a_counted_gap() {
    let (store, witness, guarded) = guarded();
    let held = store.reserve(&orders(7)).await.unwrap();
    for _ in 0..=Ledger::MOST_CLAIMS {
        store.reserve(&orders(1)).await.unwrap();
        guarded.reserve(&orders(1)).await.unwrap();
    }
    let seen = witness.ledger("orders");
    let attempt = Attempt { seen: None, grant: held };
    let grant = guarded.use_or_again(&orders(7), attempt).await.unwrap();
    assert_eq!((grant.gap, guarded.healed()), (7, 0));
    assert!(u128::from(grant.range.start()) >= seen.unwrap().top());
}

/// A range whose claim may be stored must not be granted again.
#[tokio::test]
async fn range_goes_back_only_if_its_claim_certainly_failed() {
    use ErrorKind::{Deadline, Empty, Overloaded, StoreViolation, Unavailable, UnknownOutcome, Witness};
    for &kind in ErrorKind::ALL {
        let reported = match kind {
            UnknownOutcome | Deadline | StoreViolation => UnknownOutcome,
            Empty | Overloaded | Unavailable => kind,
            _ => Witness,
        };
        let is_certain = reported != UnknownOutcome;
        for gives_back in [true, false] {
            let (store, witness) = (MemoryStore::new(), MemoryWitness::new());
            let guarded = if gives_back {
                Guarded::new(store.clone(), witness)
            } else {
                Guarded::new(Keeping(store.clone()), witness)
            };
            let grant = store.reserve(&orders(10)).await.unwrap();
            let error = guarded.unclaimed(&name(), &grant, kind.into()).await;
            let next = store.inspect(&name()).await.unwrap().unwrap().next;
            let gap = if is_certain && !gives_back { 10 } else { 0 };
            let expected = if is_certain && gives_back { 1 } else { 11 };
            assert_eq!((error.kind(), error.gap(), next), (reported, gap, Some(expected)), "{kind}");
        }
    }
}

#[tokio::test]
async fn failing_witness_says_nothing_about_the_sequence() {
    let (_, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    for kind in [ErrorKind::NotFound, ErrorKind::Denied, ErrorKind::StoreViolation] {
        witness.fail_with(Some(kind));
        let outcomes = [
            starts(&guarded, 1).await.map(drop),
            guarded.remove(&name(), None).await.map(drop),
            guarded.set(&name(), Change::new().next(1).backwards(true)).await.map(drop),
        ];
        for error in outcomes.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Witness, "{error}");
            assert!(error.to_string().contains("the witness that guards this store failed"), "{error}");
        }
    }
    witness.fail_with(Some(ErrorKind::UnknownOutcome));
    assert_eq!(
        starts(&guarded, 1).await.unwrap_err().kind(),
        ErrorKind::Unavailable,
        "a read changes nothing"
    );
    witness.fail_with(None);
    assert_eq!(starts(&guarded, 1).await.unwrap(), 6);
}

#[tokio::test]
async fn ledger_names_its_store() {
    let (first, second, witness) = (MemoryStore::new(), MemoryStore::new(), MemoryWitness::new());
    let one = Guarded::new(first, witness.clone()).at("sqlite:/a");
    assert_eq!(starts(&one, 5).await.unwrap(), 1);
    assert_eq!(witness.ledger("orders").unwrap().store.as_deref(), Some("sqlite:/a"));
    let other = Guarded::new(second, witness.clone()).at("sqlite:/b");
    let error = starts(&other, 5).await.unwrap_err();
    assert!(error.to_string().contains("the claims of sqlite:/a"), "{error}");
    let reserved = Reserve::new("idmill:witness".parse().unwrap(), 1).create(Bounds::of::<u64>());
    assert_eq!(one.reserve(&reserved).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}
