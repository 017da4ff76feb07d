use super::*;
use proptest::prelude::*;

const ORDERS: Identity = Identity { incarnation: 7, epoch: 1 };

fn range(start: u64, len: u64) -> IdRange {
    IdRange::new(start, len).unwrap()
}

fn claimed(ranges: &[(u64, u64)]) -> Ledger {
    let mut ledger = None;
    for (start, len) in ranges {
        ledger = Some(Ledger::claim(ledger.as_ref(), ORDERS, range(*start, *len)).unwrap());
    }
    ledger.unwrap()
}

#[test]
fn ranges_may_be_claimed_in_any_order_and_once() {
    let ledger = claimed(&[(1, 5), (16, 5), (11, 5)]);
    assert_eq!((ledger.floor, &ledger.claims[..], ledger.top()), (6, &[range(11, 10)][..], 21));
    for again in [(1, 5), (5, 2), (11, 1), (20, 3), (8, 4)] {
        let refused = Ledger::claim(Some(&ledger), ORDERS, range(again.0, again.1));
        assert_eq!(refused, Err(Refusal::Claimed { top: 21, went_back: true }), "{again:?}");
    }
    let whole = Ledger::claim(Some(&ledger), ORDERS, range(6, 5)).unwrap();
    assert_eq!((whole.floor, whole.claims.len()), (21, 0));
}

#[test]
fn overflowing_claims_raise_the_floor() {
    let apart: Vec<_> = (0..=10).map(|n| (1 + n * 10, 2)).collect();
    let ledger = claimed(&apart);
    assert_eq!((ledger.floor, ledger.claims.len()), (23, Ledger::MOST_CLAIMS));
    assert_eq!(
        Ledger::claim(Some(&ledger), ORDERS, range(15, 2)),
        Err(Refusal::Claimed { top: 103, went_back: false }),
        "below the floor, whether it was claimed or not"
    );
    assert_eq!(ledger.solid, 21);
    let twice = |start| {
        Ledger::claim(Some(&ledger), ORDERS, range(start, 2))
            == Err(Refusal::Claimed { top: 103, went_back: true })
    };
    assert!(twice(21) && twice(20) && !twice(19) && twice(31));
}

#[test]
fn greater_epoch_keeps_what_was_claimed() {
    let ledger = claimed(&[(1, 5), (11, 5)]);
    let revoked = Identity { epoch: 2, ..ORDERS };
    assert_eq!(
        Ledger::claim(Some(&ledger), revoked, range(1, 5)),
        Err(Refusal::Claimed { top: 16, went_back: true })
    );
    let after = Ledger::claim(Some(&ledger), revoked, range(16, 5)).unwrap();
    assert_eq!((after.identity, after.floor, after.top()), (revoked, 6, 21));
    assert_eq!(
        Ledger::claim(Some(&after), ORDERS, range(21, 5)),
        Err(Refusal::BehindReset { known: revoked })
    );
}

#[test]
fn only_the_end_of_all_claims_is_released() {
    let ledger = claimed(&[(1, 9), (20, 10)]);
    assert_eq!(ledger.release(ORDERS, range(5, 5)), None);
    assert_eq!(ledger.release(ORDERS, range(15, 15)), None, "more than was claimed together");
    assert_eq!(ledger.release(Identity { epoch: 2, ..ORDERS }, range(25, 5)), None);
    assert_eq!(ledger.release(ORDERS, range(25, 5)).unwrap().claims, [range(20, 5)]);
    let front = ledger.release(ORDERS, range(20, 10)).unwrap();
    assert_eq!((front.claims.len(), front.top()), (0, 10));
    assert_eq!(front.release(ORDERS, range(5, 5)).unwrap().floor, 5);
}

#[test]
fn grant_below_earlier_claims_shows_a_store_that_went_back() {
    let before = claimed(&[(1, 5), (1001, 5)]);
    let judge = |now: &Ledger, start| Ledger::judge(Some(&before), Some(now), ORDERS, range(start, 5));
    let went_back = Err(Refusal::Claimed { top: 1006, went_back: true });
    assert_eq!(judge(&before, 6), went_back, "although nobody claimed these ids");
    assert_eq!(judge(&before, 1006).unwrap().top(), 1011);
    let released = before.release(ORDERS, range(1001, 5)).unwrap();
    assert_eq!(judge(&released, 1001), Err(Refusal::Outdated));
    let late = claimed(&[(1, 5)]);
    let now = Ledger::claim(Some(&late), ORDERS, range(11, 5)).unwrap();
    assert!(Ledger::judge(Some(&late), Some(&now), ORDERS, range(6, 5)).is_ok(), "claimed in reverse order");
    let reset = Identity { epoch: 2, ..ORDERS };
    assert_eq!(Ledger::judge(Some(&before), Some(&before), reset, range(6, 5)), went_back);
    let replaced = Identity { incarnation: 8, epoch: 0 };
    let other = Ledger::judge(Some(&before), Some(&before), replaced, range(6, 5));
    assert_eq!(other, Err(Refusal::Replaced { known: ORDERS }));
}

#[test]
fn released_ids_are_not_reported_as_duplicates() {
    let nothing = claimed(&[(55, 9)]).release(ORDERS, range(55, 9)).unwrap();
    assert_eq!(
        Ledger::claim(Some(&nothing), ORDERS, range(47, 9)),
        Err(Refusal::Claimed { top: 55, went_back: false }),
        "below the floor, and perhaps used before there was a ledger"
    );
}

#[test]
fn the_last_id_there_is_can_be_claimed() {
    let ledger = claimed(&[(u64::MAX - 4, 2), (u64::MAX, 1)]);
    assert_eq!(ledger.top(), 1 << 64);
    assert_eq!(claimed(&[(0, u64::MAX), (u64::MAX, 1)]).floor, 1 << 64);
}

proptest! {
    /// Compares the ledger with a set of ids.
    #[test]
    fn no_id_is_claimed_twice(ranges in prop::collection::vec((0..200_u64, 1..20_u64, any::<bool>()), 1..60)) {
        let (mut ledger, mut used) = (None::<Ledger>, std::collections::BTreeSet::new());
        for (start, len, release) in ranges {
            let range = range(start, len);
            if release {
                let released = ledger.as_ref().and_then(|ledger| ledger.release(ORDERS, range));
                // An owner releases only ids that it claimed.
                if let Some(released) = released.filter(|_| range.iter().all(|id| used.contains(&id))) {
                    used.retain(|id| !range.contains(*id));
                    ledger = Some(released);
                }
            } else {
                match Ledger::claim(ledger.as_ref(), ORDERS, range) {
                    Ok(claimed) => {
                        for id in range {
                            prop_assert!(used.insert(id), "{} twice", id);
                        }
                        ledger = Some(claimed);
                    }
                    Err(Refusal::Claimed { went_back: true, .. }) => {
                        prop_assert!(range.iter().any(|id| used.contains(&id)), "{:?} is said to be granted twice", range);
                    }
                    Err(_) => {}
                }
            }
            if let Some(ledger) = &ledger {
                prop_assert!(ledger.claims.len() <= Ledger::MOST_CLAIMS && ledger.solid <= ledger.floor);
                prop_assert!(ledger.claims.is_sorted_by(|a, b| a.end() < u128::from(b.start())));
                prop_assert!(used.last().is_none_or(|last| u128::from(*last) < ledger.top()));
            }
        }
    }
}

#[test]
fn raised_floor_takes_in_the_claims_that_it_reaches() {
    let ledger = claimed(&[(1, 5), (11, 5), (21, 5)]);
    for (to, floor, claims) in [
        (6, 6, &[range(11, 5), range(21, 5)][..]),
        (10, 10, &[range(11, 5), range(21, 5)]),
        (11, 16, &[range(21, 5)]),
        (15, 16, &[range(21, 5)]),
        (16, 16, &[range(21, 5)]),
        (20, 20, &[range(21, 5)]),
        (21, 26, &[]),
        (30, 30, &[]),
    ] {
        let mut raised = ledger.clone();
        raised.raise_floor(to);
        let solid = if to == 6 { 1 } else { floor };
        assert_eq!((raised.floor, raised.solid, &raised.claims[..]), (floor, solid, claims), "{to}");
    }
}

#[test]
fn each_change_counts_as_one_version() {
    const OTHER: Identity = Identity { incarnation: 8, epoch: 0 };
    let mut first = claimed(&[(1, 9)]);
    assert_eq!(first.version, 0);
    assert_eq!(first.touched().version, 1);
    assert_eq!(Ledger::claim(Some(&first), ORDERS, range(10, 1)).unwrap().version, 1);
    assert_eq!(first.release(ORDERS, range(5, 5)).unwrap().version, 1);
    (first.version, first.stamp, first.store) = (41, 5, Some("sqlite:/a".into()));
    first.announced = Some(Announced::Removed);
    let next = Ledger::claim(Some(&first), OTHER, range(10, 1)).unwrap();
    assert_eq!((next.version, next.stamp, next.store.as_deref()), (42, 5, Some("sqlite:/a")));
    first.announced = Some(Announced::Forgotten);
    let next = Ledger::claim(Some(&first), OTHER, range(1, 1)).unwrap();
    assert_eq!((next.version, next.stamp, next.store), (42, 0, None));
}

#[test]
fn grant_below_any_claim_went_back_if_nothing_changed() {
    let judge = |ledger: &Ledger, start| {
        Ledger::judge(Some(ledger), Some(ledger), ORDERS, range(start, 5)).unwrap_err()
    };
    let claims_in_the_floor = claimed(&[(55, 9)]);
    assert_eq!(judge(&claims_in_the_floor, 47), Refusal::Claimed { top: 64, went_back: true });
    let mut claims_above_the_floor = Ledger::at(ORDERS, 10);
    claims_above_the_floor.add(range(20, 5), Ledger::MOST_CLAIMS);
    assert_eq!(judge(&claims_above_the_floor, 12), Refusal::Claimed { top: 25, went_back: true });
    // Without a claim, the ids below the floor may have been skipped.
    assert_eq!(judge(&Ledger::at(ORDERS, 10), 3), Refusal::Claimed { top: 10, went_back: false });
}

#[test]
fn ids_between_the_floor_and_a_claim_are_not_claimed() {
    let ledger = claimed(&[(10, 5), (20, 5)]);
    assert_eq!((ledger.solid, ledger.floor), (10, 15));
    for (start, len, certainly) in [
        (1, 9, false),
        (1, 10, true),
        (14, 1, true),
        (15, 5, false),
        (15, 6, true),
        (24, 1, true),
        (25, 1, false),
    ] {
        assert_eq!(ledger.certainly_has_any_of(range(start, len)), certainly, "{start}+{len}");
    }
}
