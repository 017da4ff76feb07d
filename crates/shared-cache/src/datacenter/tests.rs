//! Tests of each rule. The protocol's models show that the rules together repeat no id, and lose none except
//! as a gap.

use super::*;
use idmill::store::Identity;

const ERA: Era = Era { identity: Identity { incarnation: 7, epoch: 0 }, recalls: 0 };
const LATER: Era = Era { identity: Identity { incarnation: 7, epoch: 0 }, recalls: 1 };
const OTHER: Era = Era { identity: Identity { incarnation: 8, epoch: 0 }, recalls: 0 };

fn bounds() -> Bounds {
    Bounds::new(1, 100).unwrap()
}

fn span(start: u128, end: u128) -> Span {
    Span { start, end }
}

fn window(generation: u64, current: Span, preloaded: Option<Span>) -> WindowRow {
    WindowRow { era: ERA, bounds: bounds(), generation, current, preloaded }
}

fn global(next: u128, claim: Option<(u64, Span)>) -> GlobalRow {
    let claim = claim.map(|(token, span)| Claim { token, span });
    GlobalRow { era: ERA, bounds: bounds(), next, claim }
}

fn take(row: &WindowRow, count: u64, ceiling: u64) -> Take {
    match row.draw(count, ceiling) {
        Draw::Take(take) => take,
        other => panic!("{other:?}"),
    }
}

fn token(generation: u64, empty: bool) -> Token {
    Token { era: ERA, generation, reached: 1, empty }
}

#[test]
fn take_is_one_range_within_the_callers_limit() {
    let row = window(2, span(18, 20), Some(span(40, 50)));
    assert_eq!(take(&row, 1, 99).ids, span(18, 19));
    assert_eq!(take(&row, 5, 99).ids, span(18, 20), "it does not straddle");
    assert_eq!(take(&row, 5, 18).ids, span(18, 19), "the ceiling itself is handed out");
    assert_eq!(take(&row, 0, 99).ids.len(), 1);
    assert_eq!(row.draw(1, 17), Draw::AboveCeiling);
    let used_up = window(2, span(20, 20), Some(span(40, 50)));
    assert_eq!(used_up.draw(1, 39), Draw::AboveCeiling);
    assert_eq!(take(&used_up, 3, u64::MAX).ids, span(40, 43));
}

#[test]
fn a_used_up_range_is_switched_in_the_same_write() {
    let mut row = window(2, span(20, 20), Some(span(40, 50)));
    let switch = take(&row, 3, 99);
    assert!(switch.holds(&row));
    switch.apply(&mut row);
    assert_eq!(row, window(2, span(43, 50), None));
    assert!(!switch.holds(&row), "the condition is false after the switch");
    assert_eq!(
        row.draw(100, 99),
        Draw::Take(Take { ids: span(43, 50), current: span(50, 50), ..take(&row, 7, 99) })
    );
}

#[test]
fn only_acknowledged_ids_are_taken() {
    let take = take(&window(1, span(1, 9), None), 2, 99);
    assert_eq!(take.after(Outcome::Applied), Taken::Ids(span(1, 3)));
    assert_eq!(take.after(Outcome::Refused), Taken::Again);
    assert_eq!(take.after(Outcome::Unknown), Taken::Gap);
}

#[test]
fn a_take_holds_for_its_era_alone() {
    let row = window(1, span(5, 9), None);
    let take = take(&row, 2, 99);
    assert!(!take.holds(&WindowRow { era: LATER, ..row }) && !take.holds(&WindowRow { era: OTHER, ..row }));
}

#[test]
fn low_is_at_the_threshold_with_nothing_preloaded() {
    assert_eq!(window(1, span(4, 10), None).low(5), None);
    assert_eq!(window(1, span(5, 10), None).low(5), Some(Token { reached: 10, ..token(2, false) }));
    assert_eq!(window(1, span(10, 10), None).low(0), Some(Token { reached: 10, ..token(2, true) }));
    assert_eq!(window(1, span(5, 10), Some(span(20, 30))).low(5), None);
    let empty = window(1, span(10, 10), None);
    assert_eq!(empty.draw(1, 99), Draw::Empty(empty.low(0).unwrap()));
}

#[test]
fn claims_are_tested_in_order() {
    let recorded = Some((3, span(81, 101)));
    assert_eq!(
        global(101, recorded).claim(&token(3, true), 20, 99),
        ClaimStep::Recorded(span(81, 101)),
        "claim first"
    );
    assert_eq!(global(101, recorded).claim(&token(2, true), 20, 99), ClaimStep::Stale, "stale first");
    assert!(
        matches!(global(101, recorded).claim(&token(5, true), 20, 99), ClaimStep::Corrupt(_)),
        "corrupt first"
    );
    assert_eq!(global(101, recorded).claim(&token(4, true), 20, u64::MAX), ClaimStep::Nothing);
    let ClaimStep::Send(write) = global(50, recorded).claim(&token(4, false), 20, 99) else { panic!() };
    assert_eq!((write.seen, write.claim), (50, Claim { token: 4, span: span(50, 70) }));
}

#[test]
fn a_claim_goes_to_the_last_id_and_no_further() {
    let ClaimStep::Send(write) = global(95, None).claim(&token(1, true), 20, 99) else { panic!() };
    assert_eq!(write.claim.span, span(95, 101));
    let mut row = global(95, None);
    assert!(write.holds(&row));
    write.apply(&mut row);
    assert_eq!(row, global(101, Some((1, span(95, 101)))));
    assert!(!write.holds(&row));
    assert_eq!(
        global(95, None).claim(&token(1, true), 20, 94),
        ClaimStep::Nothing,
        "none within the ceiling"
    );
    let all = Bounds::new(0, u64::MAX).unwrap();
    let end = GlobalRow { bounds: all, ..global(u128::from(u64::MAX), None) };
    let ClaimStep::Send(write) = end.claim(&token(1, true), u64::MAX, u64::MAX) else { panic!() };
    assert_eq!(write.claim.span.len(), 1);
}

#[test]
fn a_claim_is_refused_when_era_or_max_changed() {
    let ClaimStep::Send(write) = global(50, None).claim(&token(1, false), 20, 99) else { panic!() };
    assert!(!write.holds(&GlobalRow { era: LATER, ..global(50, None) }));
    assert!(!write.holds(&GlobalRow { bounds: Bounds::new(1, 60).unwrap(), ..global(50, None) }));
    assert_eq!(GlobalRow { era: LATER, ..global(50, None) }.claim(&token(1, true), 20, 99), ClaimStep::Stale);
    assert_eq!((write.after(Outcome::Applied), write.after(Outcome::Refused)), (Some(span(50, 70)), None));
    assert_eq!(write.after(Outcome::Unknown), None);
}

#[test]
fn global_row_behind_the_window_is_corrupt() {
    let token = Token { reached: 60, ..token(4, false) };
    assert!(matches!(global(50, Some((3, span(30, 50)))).claim(&token, 20, 99), ClaimStep::Corrupt(_)));
    assert!(matches!(global(60, Some((3, span(40, 60)))).claim(&token, 20, 99), ClaimStep::Send(_)));
}

#[test]
fn an_install_happens_once_for_its_generation() {
    let mut row = window(1, span(5, 10), None);
    let install = Install::new(&token(2, false), span(20, 30), bounds());
    assert!(install.holds(&row));
    install.apply(&mut row);
    assert_eq!(row, window(2, span(5, 10), Some(span(20, 30))));
    assert!(!install.holds(&row));
    assert!(!install.holds(&WindowRow { era: LATER, ..window(1, span(5, 10), None) }));
}

#[test]
fn window_is_created_only_if_it_never_had_a_range() {
    let fresh = global(1, None);
    let empty = WindowRow::empty(ERA, bounds());
    assert_eq!(prepare(None, &fresh, None), Prepare::Create(empty));
    assert_eq!(prepare(Some(&empty), &fresh, None), Prepare::Ready);
    assert_eq!(empty.draw(1, 99), Draw::Empty(token(1, true)));
    let of_before = WindowRow { era: OTHER, ..window(9, span(5, 9), None) };
    let reset = Prepare::Reset(Reset { seen: OTHER, row: empty });
    assert_eq!(prepare(Some(&of_before), &fresh, None), reset);
    let claimed = global(21, Some((1, span(1, 21))));
    for window in [None, Some(&of_before)] {
        let Prepare::Again(floor) = prepare(window, &claimed, None) else { panic!("{window:?}") };
        assert!(matches!(prepare(window, &claimed, Some(&floor)), Prepare::Corrupt(_)), "{window:?}");
    }
}

#[test]
fn a_window_of_a_later_era_than_the_counter_is_refused() {
    let later = WindowRow { era: LATER, ..window(1, span(5, 9), None) };
    assert!(matches!(prepare(Some(&later), &global(21, None), None), Prepare::Corrupt(_)));
    let recalled = GlobalRow { era: LATER, ..global(21, None) };
    assert!(matches!(prepare(Some(&window(1, span(5, 9), None)), &recalled, None), Prepare::Reset(_)));
}

#[test]
fn restored_window_is_detected_by_its_earlier_users() {
    let floor = Floor::of_window(&window(3, span(30, 40), None));
    assert!(
        floor.allows(Some(&window(3, span(30, 40), None)))
            && floor.allows(Some(&window(4, span(30, 40), None)))
    );
    assert!(floor.allows(Some(&WindowRow { era: LATER, ..window(0, span(1, 1), None) })));
    assert!(floor.allows(Some(&WindowRow { era: OTHER, ..window(0, span(1, 1), None) })));
    assert!(!floor.allows(Some(&window(2, span(30, 40), None))), "generation");
    assert!(!floor.allows(Some(&window(3, span(29, 40), None))), "next");
    assert!(!floor.allows(None));
    let of_later = Floor { era: LATER, ..floor };
    assert!(!of_later.allows(Some(&window(9, span(90, 99), None))));
    assert_eq!(floor.raised(of_later), of_later);
    assert_eq!(of_later.raised(floor), of_later);
    let claimed = Floor::of_global(&global(50, Some((9, span(1, 2))))).unwrap();
    assert_eq!((claimed.raised(floor).generation, claimed.raised(floor).next), (8, 30));
    assert_eq!(Floor::of_global(&global(50, None)), None, "no window is recorded");
}
