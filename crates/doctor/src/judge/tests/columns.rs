//! The largest ids of columns, and how far a sequence can be raised or widened.

use super::*;

/// The limits of 32-bit and 64-bit signed integers.
const INT: u64 = 2_147_483_647;
const BIGINT: u64 = 9_223_372_036_854_775_807;

/// Returns the finding about ids in use, if it is the only one.
fn in_use(stored: &SequenceInfo, holders: &Holders) -> Option<Finding> {
    let mut found = of_columns(stored, holders);
    assert!(found.len() <= 1, "{found:?}");
    found.pop().inspect(|finding| assert_eq!(finding.kind, FindingKind::InUse))
}

#[test]
fn id_about_to_repeat_is_reported_and_no_lower_one() {
    for (largest, remedy) in [
        (9, None),
        (10, Some(raise_to_next(11))),
        (11, Some(raise_to_next(12))),
        (99, Some(raise_to_next(100))),
        (100, Some(set_max(Some(101), INT))),
        (500, Some(set_max(Some(501), INT))),
        (-1, None),
    ] {
        let finding = in_use(&stored(10, 100), &used(largest));
        let found = format!("{largest} is in use, and the next id is 10: ids will repeat");
        assert_eq!(said(finding), remedy.map(|remedy| (found, remedy)));
    }
    let finding = in_use(&stored(10, 100), &used(10)).unwrap();
    assert_eq!((finding.severity, finding.sequence.as_deref()), (Severity::Error, Some("s")));
    assert_eq!(finding.asked, "the largest id in memory:?column=t.id");
    assert_eq!(in_use(&stored(None, 100), &used(100)), None, "exhausted: no id can repeat");
    assert_eq!(in_use(&stored(10, 100), &columns([Largest::new(None, "", None)])), None, "an empty table");
}

#[test]
fn each_column_is_compared_and_all_limit_the_remedy() {
    let [small, large] = [Largest::new(50, "", None), Largest::new(500, "int", INT)];
    let both = columns([small, large]);
    let found = of_columns(&stored(10, 100), &both);
    let remedies: Vec<_> = found.into_iter().map(|finding| finding.remedy).collect();
    assert_eq!(remedies, [raise_to_next(51), set_max(Some(501), INT)]);
    let typed = Holders { of_type: Some(("i16".to_owned(), 32_767)), ..both };
    let remedy = of_columns(&stored(10, 100), &typed).pop().unwrap().remedy;
    assert_eq!(remedy, set_max(Some(501), 32_767));
}

#[test]
fn widening_stops_at_the_column_and_the_largest_id() {
    let full = |holds| {
        let advice = format!("the column or type holds ids up to {holds}: widen it first, then raise max");
        Remedy::Advice(advice)
    };
    for (largest, holds, remedy) in [
        (500, 499, full(499)),
        (500, 500, full(500)),
        (500, 501, set_max(Some(501), 501)),
        (50, 99, full(99)),
        (50, 100, full(100)),
        (50, 101, set_max(None, 101)),
    ] {
        let holders = columns([Largest::new(largest, "", holds)]);
        assert_eq!(widen(&stored(None, 100), &holders), remedy, "{largest} {holds}");
    }
    let no_such = "no sequence can exceed 2^64 - 1: check the column's name, and find the program that wrote \
                   the id";
    assert_eq!(widen(&stored(10, 100), &used(1 << 64)), Remedy::advice(no_such));
}

#[test]
fn max_is_widened_to_the_next_common_limit() {
    let empty = columns([Largest::new(None, "", None)]);
    for (max, wider) in [
        (1, INT),
        (INT - 1, INT),
        (INT, BIGINT),
        (BIGINT - 1, BIGINT),
        (BIGINT, u64::MAX),
        (1 << 63, u64::MAX),
    ] {
        assert_eq!(widen(&stored(None, max), &empty), set_max(None, wider), "{max}");
    }
    let advice = "no id can exceed 2^64 - 1: start another sequence, with ids that cannot be confused \
                  with the old ones";
    assert_eq!(widen(&stored(None, u64::MAX), &empty), Remedy::advice(advice));
}

#[test]
fn column_too_narrow_for_max_is_reported_with_its_type() {
    let narrow = |max, holds| {
        let found = of_columns(&stored(1, max), &columns([Largest::new(None, "int", holds)]));
        found.into_iter().map(|finding| (finding.kind, finding.found)).collect::<Vec<_>>()
    };
    let found = "memory:?column=t.id (int) holds ids up to 2147483647, but the sequence's max is 2147483648";
    assert_eq!(narrow(INT + 1, INT), [(FindingKind::TooNarrow, found.to_owned())]);
    assert_eq!(narrow(INT, INT), []);
    // No sequence reaches the limit of 64-bit signed integers.
    assert_eq!(narrow(u64::MAX, BIGINT), []);
    assert_eq!(narrow(u64::MAX, BIGINT - 1).len(), 1);
}

#[test]
fn negative_ids_are_reported_until_they_are_reached() {
    let negative = |next: u64, max, negative: i128| {
        of_columns(&stored(next, max), &columns([Largest::new(None, "", None).negative(negative)]))
    };
    let [finding] = &negative(10, u64::MAX, -1_000)[..] else { panic!("one finding") };
    assert_eq!((finding.kind, finding.severity), (FindingKind::Incomplete, Severity::Warning));
    assert_eq!(finding.asked, "negative ids in memory:?column=t.id");
    assert_eq!(finding.found, "-1000 would be the id 18446744073709550616, but the next id is 10");
    let too_low = i128::from(i64::MIN) - 1;
    assert_eq!(negative(10, u64::MAX, too_low), [], "no 64-bit integer");
    // Only a sequence above 2^63 - 1 can have negative ids.
    let kinds =
        |next, max| negative(next, max, -1_000).into_iter().map(|finding| finding.kind).collect::<Vec<_>>();
    assert_eq!(kinds(10, BIGINT), []);
    assert_eq!(kinds(10, BIGINT + 1), [FindingKind::Incomplete]);
    assert_eq!(kinds(BIGINT + 1, u64::MAX), [FindingKind::Incomplete]);
    assert_eq!(kinds(BIGINT + 2, u64::MAX), [FindingKind::InUse], "now they are ids");
}

#[test]
fn hidden_rows_and_a_default_are_reported() {
    let (column, largest) = used(5).columns.remove(0);
    assert_eq!(of_column(&name(), &column, &largest), []);
    let largest = largest.hidden_by("a view".to_owned()).default_value("uuid()".to_owned());
    let [hidden, default] = &of_column(&name(), &column, &largest)[..] else { panic!("two findings") };
    assert_eq!((hidden.kind, hidden.severity), (FindingKind::Incomplete, Severity::Warning));
    assert_eq!(hidden.found, "a view: a larger id may be hidden");
    assert_eq!((default.kind, default.severity), (FindingKind::ColumnDefault, Severity::Warning));
    assert_eq!(default.found, "new rows without an id get uuid(): ids will repeat");
    for finding in [hidden, default] {
        assert_eq!(finding.sequence.as_deref(), Some("s"));
        assert_eq!(finding.asked, "the largest id in memory:?column=t.id");
    }
}
