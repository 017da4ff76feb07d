//! A ledger of the witness against the sequence of the same name.

use super::*;
use idmill::IdRange;

const NEWER: Identity = Identity { epoch: 2, ..HERE };
const OTHER: Identity = Identity { incarnation: 8, epoch: 0 };

/// A ledger in which ids 1 to `last` are claimed.
fn ledger(last: u64) -> Ledger {
    Ledger::claim(None, HERE, IdRange::new(1, last).unwrap()).unwrap()
}

fn announced(last: u64, announced: Announced) -> Ledger {
    let mut ledger = ledger(last);
    ledger.announced = Some(announced);
    ledger
}

/// A sequence of 1,000 ids.
fn of(identity: Identity, next: impl Into<Option<u64>>) -> SequenceInfo {
    ending(identity, next, 1_000)
}

fn ending(identity: Identity, next: impl Into<Option<u64>>, max: u64) -> SequenceInfo {
    SequenceInfo::stored(name(), next.into(), Bounds::new(1, max).unwrap(), identity)
}

fn compared(ledger: &Ledger, stored: &SequenceInfo) -> Option<Finding> {
    against(&name(), ledger, Some(stored), &Holders::default())
}

/// Returns the kind of the finding and its remedy, with these columns.
fn remedy(ledger: &Ledger, stored: Option<&SequenceInfo>, holders: &Holders) -> (FindingKind, Remedy) {
    let finding = against(&name(), ledger, stored, holders).expect("a finding");
    (finding.kind, finding.remedy)
}

fn recreated(next: u64, bounds: Option<Bounds>) -> Remedy {
    Remedy::Recreate { name: name(), next, bounds }
}

#[test]
fn store_below_the_claims_went_back() {
    let finding = compared(&ledger(100), &of(HERE, 100)).unwrap();
    assert_eq!((finding.kind, finding.severity), (FindingKind::WentBack, Severity::Error));
    assert_eq!(finding.asked, "the sequence's ledger in the witness");
    let found = "ids below 101 were claimed, but the next id is 100: the store went back in time";
    assert_eq!((finding.found.as_str(), finding.remedy), (found, raise_to_next(101)));
    assert_eq!(compared(&ledger(100), &of(HERE, 101)), None);
    let found = "ids below 101 were claimed, but all ids up to 50 are reserved: the store went back in time";
    assert_eq!(compared(&ledger(100), &ending(HERE, None, 50)).unwrap().found, found);
}

#[test]
fn raise_passes_ids_in_use_up_to_max() {
    let behind = of(HERE, 50);
    for (largest, next) in [(99, 101), (100, 101), (101, 102), (150, 151), (999, 1_000), (1_000, 101)] {
        let expected = (FindingKind::WentBack, raise_to_next(next));
        assert_eq!(remedy(&ledger(100), Some(&behind), &used(largest)), expected, "{largest}");
    }
}

#[test]
fn missing_or_replaced_sequence_starts_above_all_ids() {
    let finding = against(&name(), &ledger(100), None, &Holders::default()).unwrap();
    let found = "ids below 101 were claimed, but the sequence is missing: the store was emptied, \
                 restored or replaced";
    assert_eq!((finding.kind, finding.found.as_str()), (FindingKind::Missing, found));
    for (largest, next) in [(99, 101), (100, 101), (101, 102), (500, 501)] {
        let missing = (FindingKind::Missing, recreated(next, None));
        assert_eq!(remedy(&ledger(100), None, &used(largest)), missing);
        let other = of(OTHER, 50);
        let replaced = (FindingKind::Replaced, recreated(next, Some(other.bounds)));
        assert_eq!(remedy(&ledger(100), Some(&other), &used(largest)), replaced);
    }
    let further = of(OTHER, 700);
    assert_eq!(remedy(&ledger(100), Some(&further), &used(500)).1, recreated(700, Some(further.bounds)));
    let found = compared(&ledger(100), &further).unwrap().found;
    assert_eq!(
        found,
        "ids below 101 of incarnation 0000000000000007 were claimed; the store has 0000000000000008: it was \
         emptied, restored or replaced"
    );
}

#[test]
fn recreated_sequence_must_have_an_id_left() {
    let bounds = |max| Bounds::new(1, max).unwrap();
    let typed = |holds| Holders { columns: Vec::new(), of_type: Some(("i16".to_owned(), holds)) };
    let missing = |holds| remedy(&ledger(100), None, &typed(holds)).1;
    assert_eq!(missing(102), recreated(101, Some(bounds(102))));
    assert_eq!(missing(101), recreated(101, Some(bounds(101))));
    let advice = "the next id is 101, but max is 100: restore the store, or raise max (`idmill set --max`)";
    assert_eq!(missing(100), Remedy::advice(advice));
    let mut all = ledger(100);
    all.floor = 1 << 64;
    let advice = "all ids were claimed: use another sequence, and keep the guard, which prevents duplicates";
    assert_eq!(remedy(&all, None, &Holders::default()).1, Remedy::advice(advice));
}

#[test]
fn lost_reset_is_reported_and_a_new_epoch_is_not() {
    let mut reset = ledger(100);
    reset.identity = NEWER;
    let finding = compared(&reset, &of(HERE, 500)).unwrap();
    let found = "the sequence was reset to epoch 2, but the store has epoch 1";
    assert_eq!((finding.kind, finding.found.as_str()), (FindingKind::BehindReset, found));
    let advice = "restore a later backup, or reset the sequence again: see `idmill set --help`";
    assert_eq!(finding.remedy, Remedy::advice(advice));
    assert_eq!(compared(&ledger(100), &of(NEWER, 101)), None);
}

#[test]
fn only_an_announced_change_explains_lower_ids() {
    use FindingKind::{Pending, WentBack};
    let resetting = announced(100, Announced::Resetting { start: 3 });
    for (ledger, stored, kind) in [
        (&ledger(100), of(NEWER, 3), WentBack),
        (&resetting, of(NEWER, 3), Pending),
        (&resetting, of(NEWER, 4), WentBack),
        (&resetting, of(HERE, 3), WentBack),
        (&resetting, of(HERE, 101), Pending),
        (&announced(100, Announced::Raising), of(HERE, 3), Pending),
        (&announced(100, Announced::Removing), of(HERE, 3), WentBack),
        (&announced(100, Announced::Removing), of(HERE, 101), Pending),
        (&announced(100, Announced::Removed), of(HERE, 3), WentBack),
    ] {
        assert_eq!(
            compared(ledger, &stored).map(|finding| finding.kind),
            Some(kind),
            "{ledger:?} {stored:?}"
        );
    }
    let removing = against(&name(), &announced(100, Announced::Removing), None, &Holders::default());
    assert_eq!(removing.map(|finding| finding.kind), Some(Pending));
}

#[test]
fn pending_change_names_the_command_that_ends_it() {
    for (change, what, remedy) in [
        (
            Announced::Resetting { start: 3 },
            "a reset to 3",
            "if no id from 3 on is in use, repeat `idmill set s --next 3 --backwards --yes`; \
             otherwise, do nothing",
        ),
        (
            Announced::Raising,
            "a raise to 101",
            "repeat `idmill set s --next 101`, or draw an id with the guard",
        ),
        (
            Announced::Removing,
            "a removal",
            "repeat `idmill remove s --yes`, or to keep the sequence, run `idmill revoke s`",
        ),
    ] {
        let found = format!("{what} was announced, but the store did not confirm it");
        let finding = compared(&announced(100, change), &of(HERE, 101));
        assert_eq!(said(finding), Some((found, Remedy::advice(remedy))));
    }
    for done in [Announced::Removed, Announced::Forgotten] {
        assert_eq!(pending(&name(), &announced(100, done)), None);
    }
}

#[test]
fn new_sequence_below_a_removed_one_is_reported() {
    let (removed, none) = (announced(100, Announced::Removed), Holders::default());
    let finding = compared(&removed, &of(OTHER, 100)).unwrap();
    assert_eq!((finding.kind, finding.severity), (FindingKind::Recreated, Severity::Warning));
    let found = "a removed sequence of this name used all ids below 101, but the next id is 100: draws \
                 without the guard repeat ids";
    assert_eq!(finding.found, found);
    let raised = |next| Remedy::Raise { name: name(), identity: OTHER, next };
    assert_eq!(finding.remedy, raised(101));
    assert_eq!(remedy(&removed, Some(&of(OTHER, 100)), &used(150)).1, raised(151));
    for (ledger, stored) in [
        (&removed, Some(of(OTHER, 101))),
        (&announced(100, Announced::Forgotten), Some(of(OTHER, 100))),
        (&removed, None),
    ] {
        assert_eq!(against(&name(), ledger, stored.as_ref(), &none), None, "{stored:?}");
    }
}

#[test]
fn new_sequence_that_ends_below_a_removed_one_is_useless() {
    let removed = announced(100, Announced::Removed);
    assert_eq!(compared(&removed, &ending(OTHER, 50, 101)).unwrap().kind, FindingKind::Recreated);
    let finding = compared(&removed, &ending(OTHER, 50, 100)).unwrap();
    assert_eq!((finding.kind, finding.severity), (FindingKind::Exhausted, Severity::Error));
    let found = "a removed sequence of this name used all ids below 101, but max is 100: no id can be drawn";
    let advice = "raise max above 101 (`idmill set s --max`); or, if no id is in use, remove the sequence \
                  with `--forget`";
    assert_eq!((finding.found.as_str(), finding.remedy), (found, Remedy::advice(advice)));
}

#[test]
fn ledger_of_another_place_is_shared_unless_it_moved() {
    let placed = |mut ledger: Ledger| {
        ledger.store = Some("sqlite:/a".into());
        ledger
    };
    let (both, there) = (of(OTHER, 1), placed(ledger(100)));
    let shared = |ledger: &Ledger, stored: Option<&SequenceInfo>, here| shared(&name(), ledger, stored, here);
    let found = "ids below 101 were claimed for sqlite:/a, and this is sqlite:/b";
    for (stored, severity) in [(Some(&both), Severity::Error), (None, Severity::Warning)] {
        let finding = shared(&there, stored, Some("sqlite:/b")).unwrap();
        assert_eq!((finding.kind, finding.severity), (FindingKind::Shared, severity));
        assert_eq!(finding.found, found);
    }
    let moved = of(Identity { epoch: 5, ..HERE }, 1);
    for (ledger, stored, here) in [
        (&there, Some(&both), Some("sqlite:/a")),
        (&there, None, Some("sqlite:/a")),
        (&there, Some(&both), None),
        (&there, Some(&moved), Some("sqlite:/b")),
        (&ledger(100), Some(&both), Some("sqlite:/b")),
        (&placed(announced(100, Announced::Removed)), Some(&both), Some("sqlite:/b")),
    ] {
        assert_eq!(shared(ledger, stored, here), None, "{ledger:?} {stored:?} {here:?}");
    }
}

#[test]
fn ids_above_the_claims_are_a_warning() {
    let finding = not_claimed(&ledger(100), &of(HERE, 103)).unwrap();
    assert_eq!((finding.kind, finding.severity), (FindingKind::Unguarded, Severity::Warning));
    assert_eq!(finding.found, "ids 101 to 102 were reserved or skipped, but not claimed");
    assert_eq!(not_claimed(&ledger(100), &of(HERE, 101)), None);
    assert_eq!(not_claimed(&ledger(100), &of(NEWER, 103)), None);
    assert_eq!(not_claimed(&announced(100, Announced::Raising), &of(HERE, 103)), None);
}

#[test]
fn used_sequence_without_a_ledger_is_only_information() {
    let finding = unguarded(&of(HERE, 2)).unwrap();
    assert_eq!((finding.kind, finding.severity), (FindingKind::Unguarded, Severity::Info));
    assert_eq!(finding.found, "nothing was claimed, but the next id is 2");
    assert_eq!(unguarded(&of(HERE, 1)), None);
    assert!(unguarded(&of(HERE, None)).is_some());
}
