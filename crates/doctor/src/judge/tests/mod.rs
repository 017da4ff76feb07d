//! Each rule on both sides of its limits, with the whole text of the finding.

mod columns;
mod ledgers;

use super::*;
use idmill::store::Identity;
use idmill_url::Schemes;

const HERE: Identity = Identity { incarnation: 7, epoch: 1 };

fn name() -> SequenceName {
    SequenceName::new("s").unwrap()
}

/// A sequence from 1 to `max`; `None` as the next id: exhausted.
fn stored(next: impl Into<Option<u64>>, max: u64) -> SequenceInfo {
    SequenceInfo::stored(name(), next.into(), Bounds::new(1, max).unwrap(), HERE)
}

/// These columns, all with the same name.
fn columns(largest: impl IntoIterator<Item = Largest>) -> Holders {
    let column = ColumnUrl::parse(&Schemes::default(), "memory:?column=t.id").unwrap();
    let columns = largest.into_iter().map(|largest| (column.clone(), largest)).collect();
    Holders { columns, of_type: None }
}

/// A column with this largest id, of a type that can hold any id.
fn used(id: i128) -> Holders {
    columns([Largest::new(id, "", None)])
}

fn raise_to_next(next: u64) -> Remedy {
    Remedy::Raise { name: name(), identity: HERE, next }
}

fn set_max(next: Option<u64>, max: u64) -> Remedy {
    Remedy::SetMax { name: name(), next, max }
}

/// Returns the text of a finding and its remedy.
fn said(finding: Option<Finding>) -> Option<(String, Remedy)> {
    finding.map(|finding| (finding.found, finding.remedy))
}

#[test]
fn exhausted_store_says_what_columns_hold() {
    let (all, none) = ("all ids up to max 100 are reserved", Holders::default());
    let finding = exhausted(&stored(None, 100), &none).unwrap();
    let advice =
        "set `--check` to find the largest id; then `idmill set s --next N --max MAX`, with N above it";
    assert_eq!((finding.kind, finding.severity), (FindingKind::Exhausted, Severity::Error));
    assert_eq!((finding.sequence.as_deref(), finding.asked.as_str()), (Some("s"), "the ids that are left"));
    assert_eq!(finding.found, format!("{all}; no column was compared"));
    assert_eq!(finding.remedy, Remedy::advice(advice));
    for (largest, more, next) in
        [(100, "", None), (101, ", and 101 is in use", Some(102)), (500, ", and 500 is in use", Some(501))]
    {
        let finding = said(exhausted(&stored(None, 100), &used(largest)));
        assert_eq!(finding, Some((format!("{all}{more}"), set_max(next, 2_147_483_647))));
    }
    assert_eq!(exhausted(&stored(100, 100), &none), None, "one id is left");
}

#[test]
fn sequence_ends_soon_only_within_the_time() {
    let (within, none) = (Duration::from_secs(100), Holders::default());
    let ends = |next: Option<u64>, rate| ends(&stored(next, 1_000), rate, within, &none);
    let finding = ends(Some(901), 1.0).unwrap();
    assert_eq!((finding.kind, finding.severity), (FindingKind::EndsSoon, Severity::Warning));
    assert_eq!(finding.asked, "how long the ids last");
    assert_eq!(finding.found, "100 ids are left; they last 100 s at 1.0 per second");
    assert_eq!(ends(Some(900), 1.0), None, "101 s");
    assert_eq!(ends(Some(901), 0.0), None);
    assert_eq!(ends(None, 1.0), None, "already exhausted, which is another finding");
}

#[test]
fn time_is_printed_in_the_largest_fitting_unit() {
    for (seconds, text) in [
        (0.0, "0 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (7_199.0, "120 min"),
        (7_200.0, "2 h"),
        (172_799.0, "48 h"),
        (172_800.0, "2.0 days"),
        (302_400.0, "3.5 days"),
    ] {
        assert_eq!(days(seconds), text);
    }
}

#[test]
fn narrow_type_is_an_error_once_it_is_passed() {
    let narrow = |next: Option<u64>, max| too_narrow(&stored(next, max), "i8", 127);
    let found = "i8 holds ids up to 127, but the sequence's max is 128";
    let passed = Remedy::advice("ids above 127 are already reserved: widen i8");
    for (next, severity, remedy) in [
        (Some(1), Severity::Warning, set_max(None, 127)),
        (Some(128), Severity::Warning, set_max(None, 127)),
        (None, Severity::Error, passed),
    ] {
        let finding = narrow(next, 128).unwrap();
        assert_eq!(
            (finding.severity, finding.asked.as_str()),
            (severity, "whether the sequence's ids fit i8")
        );
        assert_eq!((finding.found.as_str(), finding.remedy), (found, remedy));
    }
    assert_eq!(narrow(Some(1), 127), None);
}

#[test]
fn window_is_ahead_only_above_the_grants() {
    let finding = behind_window(&stored(10, 100), 11).unwrap();
    assert_eq!((finding.kind, finding.asked.as_str()), (FindingKind::WentBack, "the window"));
    let found = "ids below 11 were put into the window, but the next id is 10: the store went back in time";
    assert_eq!((finding.found.as_str(), finding.remedy), (found, raise_to_next(11)));
    assert_eq!(behind_window(&stored(10, 100), 10), None);
    // The next id may be one past max, but no higher.
    for (end, next) in [(100, 100), (101, 101), (102, 101)] {
        assert_eq!(behind_window(&stored(10, 100), end).unwrap().remedy, raise_to_next(next), "{end}");
    }
    let all = behind_window(&stored(10, u64::MAX), 1 << 64).unwrap().remedy;
    let advice = "all ids were claimed: use another sequence, and keep the guard, which prevents duplicates";
    assert_eq!(all, Remedy::advice(advice));
}

#[test]
fn only_a_store_that_forgets_is_reported() {
    for (guarded, severity) in [(true, Severity::Warning), (false, Severity::Error)] {
        let finding = forgets(Durability::Process, guarded).unwrap();
        assert_eq!((finding.kind, finding.severity), (FindingKind::LosesWrites, severity));
        assert_eq!((finding.sequence, finding.asked.as_str()), (None, "the durability of grants"));
        assert_eq!(forgets(Durability::Disk, guarded), None);
    }
}

#[test]
fn failed_check_is_refused_only_while_connecting() {
    use ErrorKind::{Conflict, Denied, StoreViolation, Unavailable, Unsupported};
    use FindingKind::{NotSeen, Refused};
    let (fix, retry) = ("fix the error", "retry later");
    for (kind, connecting, otherwise, remedy) in [
        (Conflict, Refused, NotSeen, fix),
        (Unsupported, Refused, NotSeen, fix),
        (StoreViolation, Refused, NotSeen, fix),
        (Denied, NotSeen, NotSeen, fix),
        (Unavailable, NotSeen, NotSeen, retry),
    ] {
        let error = || Error::new(kind, "no");
        let of = |error: Error| not_seen("the store", Some(&name()), &error);
        assert_eq!(of(error().during(Operation::Connect)).kind, connecting, "{kind}");
        assert_eq!(of(error().during(Operation::List)).kind, otherwise, "{kind}");
        let finding = of(error());
        assert_eq!((finding.kind, finding.found.as_str()), (otherwise, "no"));
        let advice = format!("{remedy}; the result is unknown until this check succeeds");
        assert_eq!(finding.remedy, Remedy::Advice(advice), "{kind}");
    }
}

#[test]
fn cause_of_a_failed_check_is_reported() {
    let error = Error::new(ErrorKind::Unavailable, "cannot read").because("the disk is full");
    assert_eq!(not_seen("the store", None, &error).found, "cannot read: the disk is full");
}
