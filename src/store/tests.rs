//! Tests of the arithmetic that stores share.

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::name::SequenceName;
use crate::range::IdRange;

fn sequence(next: Option<u64>, start: u64, max: u64) -> SequenceInfo {
    let name = SequenceName::new("s").unwrap();
    SequenceInfo { name, next, bounds: Bounds::new(start, max).unwrap(), identity: Identity::fresh() }
}

#[test]
fn the_last_id_of_u64_is_granted_and_then_nothing() {
    let mut info = sequence(Some(u64::MAX - 4), 1, u64::MAX);
    assert_eq!(info.grant(3, u64::MAX).unwrap().range.last(), Some(u64::MAX - 2));
    assert_eq!(info.remaining(), 2);
    let rest = info.grant(10, u64::MAX).unwrap().range;
    assert_eq!((rest.len(), rest.last()), (2, Some(u64::MAX)));
    assert_eq!((info.next, info.remaining()), (None, 0));
    for _ in 0..2 {
        assert_eq!(info.grant(1, u64::MAX).unwrap_err().kind(), ErrorKind::Exhausted);
    }
}

#[test]
fn a_ceiling_ends_a_caller_but_not_the_sequence() {
    let mut info = sequence(Some(98), 1, 1000);
    assert_eq!(info.grant(10, 100).unwrap().range.len(), 3);
    assert_eq!(info.grant(1, 100).unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(info.grant(10, 1000).unwrap().range.start(), 101);
}

#[test]
fn the_whole_of_u64_is_granted_in_two() {
    let mut info = sequence(Some(0), 0, u64::MAX);
    assert_eq!(info.grant(u64::MAX, u64::MAX).unwrap().range.len(), u64::MAX);
    assert_eq!(info.grant(u64::MAX, u64::MAX).unwrap().range.last(), Some(u64::MAX));
    assert_eq!(info.next, None);
}

proptest! {
    #[test]
    fn grants_tile_the_bounds(
        start in prop_oneof![0..50_u64, u64::MAX - 300..=u64::MAX - 200],
        span in 0..200_u64,
        counts in prop::collection::vec(1..50_u64, 1..30),
    ) {
        let mut info = sequence(Some(start), start, start + span);
        let mut expected = u128::from(start);
        for count in counts {
            match info.grant(count, u64::MAX) {
                Ok(grant) => {
                    prop_assert_eq!(u128::from(grant.range.start()), expected);
                    expected = grant.range.end();
                    prop_assert!(grant.range.len() == count || info.next.is_none());
                }
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Exhausted);
                    prop_assert_eq!(expected, u128::from(start + span) + 1);
                }
            }
        }
    }
}

#[test]
fn changes_are_guarded() {
    let refused = |info: &SequenceInfo, change: Change| {
        let mut copy = info.clone();
        let kind = copy.apply(&change).unwrap_err().kind();
        assert_eq!(&copy, info, "a refused change changes nothing");
        kind
    };
    let at = |next| Change { next: Some(next), ..Change::default() };
    let info = sequence(Some(50), 10, 100);
    assert_eq!(refused(&info, at(49)), ErrorKind::Conflict);
    assert_eq!(refused(&info, at(9)), ErrorKind::InvalidInput);
    assert_eq!(refused(&info, at(102)), ErrorKind::InvalidInput);
    assert_eq!(refused(&info, Change { max: Some(40), ..Change::default() }), ErrorKind::Conflict);
    assert_eq!(refused(&info, Change { max: Some(9), ..Change::default() }), ErrorKind::InvalidInput);
    let other = Identity { incarnation: info.identity.incarnation + 1, epoch: 0 };
    assert_eq!(refused(&info, Change { expect: Some(other), ..at(60) }), ErrorKind::Conflict);
}

#[test]
fn only_a_step_backwards_raises_the_epoch() {
    let mut info = sequence(Some(50), 10, 100);
    info.apply(&Change { next: Some(60), max: Some(200), ..Change::default() }).unwrap();
    assert_eq!((info.next, info.bounds.max(), info.identity.epoch), (Some(60), 200, 0));
    info.apply(&Change { next: Some(20), backwards: true, ..Change::default() }).unwrap();
    assert_eq!((info.next, info.identity.epoch), (Some(20), 1));
    info.apply(&Change { next: Some(61), ..Change::default() }).unwrap();
    info.apply(&Change { max: Some(40), backwards: true, ..Change::default() }).unwrap();
    assert_eq!((info.next, info.bounds.max(), info.identity.epoch), (None, 40, 2));
}

#[test]
fn raising_the_max_reopens_an_exhausted_sequence() {
    let mut info = sequence(None, 1, 100);
    info.apply(&Change { max: Some(101), ..Change::default() }).unwrap();
    assert_eq!((info.next, info.identity.epoch), (Some(101), 0));
}

proptest! {
    /// Each step gives back the end of the last grant. The next grant begins there, so the kept ids tile the
    /// bounds.
    #[test]
    fn rests_are_granted_again(
        start in prop_oneof![0..50_u64, u64::MAX - 300..=u64::MAX - 200],
        span in 0..200_u64,
        steps in prop::collection::vec((1..50_u64, 0..60_u64), 1..30),
    ) {
        let mut info = sequence(Some(start), start, start + span);
        let mut expected = u128::from(start);
        for (count, kept) in steps {
            let Ok(Grant { mut range, identity, .. }) = info.grant(count, u64::MAX) else { break };
            prop_assert_eq!(u128::from(range.start()), expected);
            let front = range.take_front(kept);
            expected = front.end();
            if !range.is_empty() {
                let back = GiveBack { name: info.name.clone(), identity, rest: range };
                prop_assert!(info.take_back(&back));
                prop_assert!(!info.take_back(&back), "once");
            }
        }
        prop_assert_eq!(info.remaining(), u128::from(start + span) + 1 - expected);
    }
}

#[test]
fn a_rest_is_taken_back_from_its_own_sequence_alone() {
    let mut info = sequence(Some(50), 10, 100);
    let back = |start: u64, len: u64, identity| GiveBack {
        name: SequenceName::new("s").unwrap(),
        identity,
        rest: IdRange::new(start, len).unwrap(),
    };
    let identity = info.identity;
    let reset = Identity { epoch: identity.epoch + 1, ..identity };
    let again = Identity { incarnation: identity.incarnation ^ 1, ..identity };
    for wrong in [
        back(40, 9, identity),
        back(40, 11, identity),
        back(9, 41, identity),
        back(50, 0, identity),
        back(40, 10, reset),
        back(40, 10, again),
    ] {
        assert!(!info.take_back(&wrong), "{wrong:?}");
        assert_eq!(info.next, Some(50));
    }
    assert!(info.take_back(&back(10, 40, identity)));
    assert_eq!(info.next, Some(10));
}
