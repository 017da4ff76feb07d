//! Raises, removals, and ids that were never claimed.

use super::*;

/// The ids below a raised `next` are in use: neither a removal nor a restore may let them be handed out.
#[tokio::test]
async fn raised_ids_stay_used() {
    let raises = [Some(501), None];
    for (raise, restored) in raises.into_iter().flat_map(|raise| [(raise, true), (raise, false)]) {
        let (store, _, guarded) = guarded();
        let backup = if raise.is_some() {
            assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
            store.snapshot()
        } else {
            let created = guarded.create(&name(), Bounds::of::<u64>()).await.unwrap();
            let backup = store.snapshot();
            idmill_kit::raise(&guarded, &created, 501).await.unwrap();
            backup
        };
        if let Some(next) = raise {
            guarded.set(&name(), Change::new().next(next)).await.unwrap();
        }
        if restored {
            store.restore(&backup);
        } else {
            assert!(guarded.remove(&name(), None).await.unwrap());
        }
        assert_eq!(starts(&guarded, 5).await.unwrap(), 501, "{raise:?} {restored}");
        assert_eq!(guarded.healed(), u64::from(restored), "only a restored store went back");
    }
}

#[tokio::test]
async fn raise_without_the_witness_is_rejected() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    witness.set_away(true);
    let error = guarded.set(&name(), Change::new().next(501)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(store.inspect(&name()).await.unwrap().unwrap().next, Some(6));
    guarded.set(&name(), Change::new().revoke(true)).await.unwrap();
    witness.set_away(false);
    witness.set_read_only(true);
    let error = guarded.set(&name(), Change::new().next(501)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Witness, "{error}");
    assert_eq!(store.inspect(&name()).await.unwrap().unwrap().next, Some(6));
    witness.set_read_only(false);
    guarded.set(&name(), Change::new().next(501)).await.unwrap();
    assert_eq!(witness.ledger("orders").unwrap().top(), 501);
}

/// The administrator was killed between the two halves of a raise: nothing went back.
#[tokio::test]
async fn announced_raise_is_completed_without_an_alarm() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    let identity = store.inspect(&name()).await.unwrap().unwrap().identity;
    let raising = Ledger::raising(witness.ledger("orders").as_ref(), identity, 501);
    witness.set_ledger(&name(), raising);
    assert_eq!(starts(&guarded, 5).await.unwrap(), 501);
    assert_eq!((guarded.healed(), witness.ledger("orders").unwrap().announced), (0, None));
}

#[tokio::test]
async fn unclaimed_ids_below_the_claims_are_not_handed_out() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    let backup = store.snapshot();
    // An unguarded process draws 6 to 1000.
    store.reserve(&orders(995)).await.unwrap();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1001);
    store.restore(&backup);
    let another = Guarded::new(store.clone(), witness.clone());
    assert_eq!(starts(&another, 5).await.unwrap(), 1006);
    assert_eq!((another.healed(), guarded.healed()), (1, 0));
    store.restore(&backup);
    let many = another.reserve_many(&[orders(1), orders(1)]).await;
    assert!(many.into_iter().all(|grant| grant.unwrap().range.start() > 1010));
}

#[tokio::test]
async fn removal_covers_unclaimed_ids_of_the_store() {
    let (store, _, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    store.reserve(&orders(100)).await.unwrap();
    assert!(guarded.remove(&name(), None).await.unwrap());
    store.reserve(&orders(200)).await.unwrap();
    assert!(guarded.remove(&name(), None).await.unwrap());
    assert_eq!(starts(&guarded, 5).await.unwrap(), 201);
}

/// Another process replaces the sequence before it is removed.
#[derive(Debug)]
struct Replaced(MemoryStore);

impl Store for Replaced {
    fn remove<'a>(
        &'a self,
        name: &'a SequenceName,
        expected: Option<Identity>,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            assert!(self.0.remove(name, None).await?);
            self.0.create(name, Bounds::of::<u64>()).await?;
            self.0.remove(name, expected).await
        })
    }

    idmill::store_calls!(|this| this.0 => capabilities reserve give_back create inspect list set);
}

#[tokio::test]
async fn removal_of_another_identity_leaves_the_ledger() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    let (ledger, stored) = (witness.ledger("orders"), store.inspect(&name()).await.unwrap().unwrap());
    let identity = stored.identity;
    let other = Identity { epoch: identity.epoch + 1, ..identity };
    let refused = guarded.remove(&name(), Some(other)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!((witness.ledger("orders"), store.inspect(&name()).await.unwrap()), (ledger, Some(stored)));
    // The sequence is replaced between the announcement and the removal.
    let late = Guarded::new(Replaced(store.clone()), witness.clone());
    let refused = late.remove(&name(), Some(identity)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let after = witness.ledger("orders").unwrap();
    assert_eq!((after.identity, after.top(), after.announced), (identity, 6, None));
    let identity = store.inspect(&name()).await.unwrap().expect("the new sequence").identity;
    assert!(guarded.remove(&name(), Some(identity)).await.unwrap());
    assert_eq!(starts(&guarded, 5).await.unwrap(), 6);
}

#[tokio::test]
async fn refused_removal_does_not_block_the_new_sequence() {
    let (store, witness, guarded) = guarded();
    store.create(&name(), Bounds::of::<u64>()).await.unwrap();
    store.reserve(&orders(20)).await.unwrap();
    let identity = store.inspect(&name()).await.unwrap().unwrap().identity;
    let late = Guarded::new(Replaced(store.clone()), witness.clone());
    let refused = late.remove(&name(), Some(identity)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(starts(&guarded, 5).await.unwrap(), 21, "above the ids of the replaced sequence");
}

/// Two administrators remove a sequence at once. Between them, another process creates it again.
#[tokio::test]
async fn overlapping_removals_leave_no_claims_behind() {
    let (store, witness, guarded) = guarded();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 1);
    let announced = witness.ledger("orders");
    assert!(guarded.remove(&name(), None).await.unwrap());
    assert_eq!(starts(&guarded, 5).await.unwrap(), 6);
    // The second administrator read the first ledger, and removes the new sequence.
    store.remove(&name(), None).await.unwrap();
    assert_ne!(announced.unwrap().identity, witness.ledger("orders").unwrap().identity);
    guarded.confirm_another(&name()).await.unwrap();
    assert_eq!(starts(&guarded, 5).await.unwrap(), 11);
    guarded.confirm_another(&name()).await.unwrap();
    assert!(!witness.ledger("orders").unwrap().is_removed(), "the sequence exists");
}
