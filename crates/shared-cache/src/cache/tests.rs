use super::*;
use proptest::prelude::*;

const LAYOUT: Layout = Layout { start: 1 };

fn range(start: u64, len: u64) -> IdRange {
    IdRange::new(start, len).unwrap()
}

fn encoded(end: u64, left: u64) -> u64 {
    Layout::encode(end, left).unwrap()
}

/// The number after `drawn` ids were drawn from it.
fn added(number: u64, drawn: u64) -> Added {
    Added::Number { number: number + drawn, cas: 7 }
}

fn took(next: Next) -> (IdRange, bool) {
    match next {
        Next::Take(taken) => (taken.range, taken.low),
        next => panic!("{next:?}"),
    }
}

/// The fence of the stub with cas 9 on connection 1.
fn fence() -> Fence {
    match after_look(1, LookReply::Won { cas: 9 }) {
        Next::Refill(fence) => fence,
        next => panic!("{next:?}"),
    }
}

#[test]
fn draw_takes_the_added_range_up_to_the_end() {
    let ten = encoded(10, 10);
    assert_eq!(took(after_add(LAYOUT, 3, added(ten, 3))).0, range(1, 3));
    assert_eq!(took(after_add(LAYOUT, 3, added(ten, 9))).0, range(7, 3));
    assert_eq!(took(after_add(LAYOUT, 3, added(ten, 12))).0, range(10, 1));
    let prepared = Next::Await { end: 10, cas: 7 };
    assert_eq!(after_add(LAYOUT, 3, added(ten, 13)), prepared);
    assert_eq!(after_add(LAYOUT, 3, added(ten, 1 << 27)), prepared);
    let one = encoded(10, 1);
    assert_eq!(
        after_add(LAYOUT, 3, added(one, 4)),
        Next::Send(Command::Clear { cas: 7 }),
        "nobody prepares anything"
    );
    assert_eq!(took(after_add(LAYOUT, 3, added(encoded(30, 10), 3))).0, range(21, 3));
    assert_eq!(after_add(LAYOUT, 3, Added::Missing), Next::Send(Command::Look));
    assert_eq!(after_add(LAYOUT, 3, Added::NotANumber), Next::Wait);
}

#[test]
fn a_number_that_is_not_ours_hands_out_nothing() {
    assert_eq!(after_add(LAYOUT, 3, Added::Number { number: 2, cas: 1 }), Next::Foreign, "below zero before");
    assert_eq!(
        after_add(LAYOUT, 1, Added::Number { number: 42, cas: 1 }),
        Next::Foreign,
        "more ids left than exist below the end"
    );
    let high = Layout::new(u64::MAX);
    assert_eq!(after_add(high, 1, added(encoded(9, 3), 1)), Next::Foreign, "beyond 2^64");
    assert_eq!(took(after_add(high, 1, added(encoded(1, 1), 1))).0, range(u64::MAX, 1), "the last");
    assert_eq!(after_look(1, LookReply::Foreign), Next::Foreign);
    assert_eq!(after_look(1, LookReply::Number { number: 42, cas: 1 }), Next::Foreign);
}

/// memcached with `-C` returns cas 0 for every item, and does not accept it as a condition.
#[test]
fn cache_without_cas_is_rejected_before_a_reserve() {
    assert_eq!(after_look(1, LookReply::Won { cas: 0 }), Next::Unnumbered);
    assert_eq!(after_look(1, LookReply::Number { number: encoded(9, 0), cas: 0 }), Next::Unnumbered);
    let empty = Added::Number { number: encoded(9, 0) + 1, cas: 0 };
    assert_eq!(after_add(LAYOUT, 1, empty), Next::Unnumbered);
    assert_eq!(extend(LAYOUT, 9, range(10, 5), LookReply::Number { number: encoded(9, 3), cas: 0 }), None);
}

#[test]
fn window_number_encodes_the_next_id() {
    assert_eq!(LAYOUT.next_of(encoded(50, 1)), Some(50));
    assert_eq!(LAYOUT.next_of(encoded(50, 0)), None, "empty");
    assert_eq!(Layout::new(u64::MAX).next_of(encoded(50, 1)), None, "beyond 2^64");
}

#[test]
fn look_never_adds_to_a_empty_window() {
    assert_eq!(after_look(1, LookReply::Stub), Next::Wait);
    let seen = |drawn| LookReply::Number { number: encoded(50, 10) + drawn, cas: 8 };
    assert_eq!(after_look(1, seen(9)), Next::Draw);
    assert_eq!(after_look(1, seen(10)), Next::Await { end: 50, cas: 8 });
    assert_eq!(after_look(1, seen(11)), Next::Await { end: 50, cas: 8 });
    assert_eq!(
        after_look(1, LookReply::Number { number: encoded(50, 0), cas: 8 }),
        Next::Send(Command::Clear { cas: 8 })
    );
}

#[test]
fn a_fence_is_worth_nothing_on_another_connection() {
    assert_eq!((fence().cas_on(1), fence().cas_on(2)), (Some(9), None));
    assert_eq!(refill(LAYOUT, fence(), 2, range(1, 10), 1), None);
}

#[test]
fn a_range_goes_to_the_window_without_the_winners_ids() {
    let put =
        Refill { command: Command::Put { cas: 9, number: encoded(40, 6) }, own: range(31, 4), unused: 0 };
    assert_eq!(refill(LAYOUT, fence(), 1, range(31, 10), 4), Some(put));
    let high = Layout::new(u64::MAX - 9);
    let last = refill(high, fence(), 1, range(u64::MAX - 9, 10), 2).unwrap();
    assert_eq!(last.command, Command::Put { cas: 9, number: encoded(10, 8) }, "up to 2^64 - 1");
}

#[test]
fn winner_keeps_its_own_ids_out_of_the_window() {
    let own = Refill { command: Command::Release { cas: 9 }, own: range(31, 4), unused: 0 };
    assert_eq!(refill(LAYOUT, fence(), 1, range(31, 4), 5), Some(own));
    assert_eq!(refill(Layout::new(100), fence(), 1, range(1, 10), 1), None, "not of this sequence");
    let beyond = refill(LAYOUT, fence(), 1, range(Layout::REACH + 1, 10), 2).unwrap();
    assert_eq!((beyond.command, beyond.unused), (Command::Release { cas: 9 }, 8));
}

#[test]
fn distant_window_end_is_rounded_down_and_counted_unused() {
    let end = (1 << 30) + 100;
    let put = refill(LAYOUT, fence(), 1, range(end - 99, 100), 1).unwrap();
    assert_eq!(
        put.command,
        Command::Put { cas: 9, number: encoded(end - 4, 95) },
        "the end is rounded down to a multiple of 32"
    );
    assert_eq!(put.unused, 4);
    assert_eq!(
        LAYOUT.refill_of(Some(end - 99), u64::MAX, 1, 100),
        128,
        "so the reserve ends at a multiple of 32"
    );
}

/// Exactly one draw reports that it crossed the mark.
#[test]
fn one_draw_prepares_the_next_range() {
    for count in 1..12 {
        let (number, mut drawn, mut heard) = (encoded(100, 40), 0, Vec::new());
        while drawn < 40 {
            drawn += count;
            let (range, low) = took(after_add(LAYOUT, count, added(number, drawn)));
            heard.extend(low.then(|| 40_u64.saturating_sub(drawn)));
            assert!(range.start() <= 100);
        }
        assert!(heard.len() == 1 && heard[0] <= 16 && heard[0] > 4, "{count}: {heard:?}");
    }
    assert!(
        took(after_add(LAYOUT, 40, added(encoded(100, 40), 40))).1,
        "a draw of all remaining ids crosses the mark too"
    );
    assert!(!took(after_add(LAYOUT, 1, added(encoded(100, 1), 1))).1, "there was no mark");
}

#[test]
fn window_is_extended_only_from_its_current_end() {
    let seen = |end, left| LookReply::Number { number: encoded(end, left), cas: 8 };
    let moved = |end, size| {
        Some(Extend { command: Command::Put { cas: 8, number: encoded(end, size) }, size, unused: 0 })
    };
    assert_eq!(extend(LAYOUT, 40, range(41, 10), seen(40, 3)), moved(50, 13));
    assert_eq!(
        extend(LAYOUT, 40, range(41, 10), seen(40, 0)),
        moved(50, 10),
        "an empty window is extended too"
    );
    assert_eq!(extend(LAYOUT, 40, range(41, 10), seen(39, 3)), None, "another range");
    assert_eq!(extend(LAYOUT, 40, range(41, 10), seen(50, 3)), None);
    assert_eq!(
        extend(LAYOUT, 40, range(44, 10), seen(40, 3)),
        None,
        "41 to 43 were granted to another process"
    );
    assert_eq!(
        extend(LAYOUT, 40, range(44, 10), seen(40, 0)),
        moved(53, 10),
        "an empty window skips 41 to 43"
    );
    for gone in [LookReply::Nothing, LookReply::Stub, LookReply::Foreign, LookReply::Won { cas: 8 }] {
        assert_eq!(extend(LAYOUT, 40, range(41, 10), gone), None);
    }
}

#[test]
fn refill_has_the_step_size_and_stops_at_the_last_id() {
    assert_eq!(LAYOUT.refill_of(Some(1), 100, 3, 10), 10);
    assert_eq!(LAYOUT.refill_of(Some(37), 100, 3, 10), 10);
    assert_eq!(LAYOUT.refill_of(Some(95), 100, 3, 10), 6);
    assert_eq!(LAYOUT.refill_of(Some(37), 100, 3, 2), 3, "what is wanted");
    assert_eq!(LAYOUT.refill_of(None, 100, 3, 10), 3);
    assert_eq!(LAYOUT.refill_of(Some(u64::MAX), u64::MAX, 3, 10), 3);
    assert_eq!(
        LAYOUT.refill_of(Some(Layout::REACH), u64::MAX, 3, 10),
        3,
        "the cached number cannot encode larger ids"
    );
}

#[test]
fn no_number_of_ours_spills_over_or_wraps() {
    let most = Layout::MAX_LEN + (Layout::MOST_EMPTY + 1) * Layout::MAX_DRAW;
    assert!(most <= 1 << COUNTED, "{most}");
    const { assert!(Layout::MOST_EMPTY > 30_000) };
    let last = encoded(Layout::REACH, Layout::MAX_LEN);
    assert!(last.checked_add(1 << 62).is_some());
    assert_eq!(Layout::encode(1, 2), None, "more ids left than the end allows");
    assert_eq!(Layout::encode(1 << 40, Layout::MAX_LEN + 1), None);
    assert_eq!(Layout::encode((1 << 40) + 1, 1), None, "too large to be encoded exactly");
    assert_eq!(Layout::draw_of(u64::MAX), Layout::MAX_DRAW);
    assert_eq!((Layout::draw_of(11), Layout::draw_of(0)), (11, 1));
}

proptest! {
    /// Each id of a refill is in exactly one of three places, and draws return exactly the ids in the window.
    #[test]
    fn a_refill_hands_out_each_reserved_id_once(
        start in prop_oneof![0..50_u64, u64::MAX - 400..u64::MAX - 300],
        skip in prop_oneof![0..200_u64, (1_u64 << 26) - 100..(1 << 26) + 100, Just(Layout::REACH - 30)],
        reserved in 1..60_u64, count in 1..40_u64, more in 1..60_u64,
    ) {
        prop_assume!(start.checked_add(skip + 200).is_some());
        let (layout, reserved) = (Layout::new(start), range(start + skip, reserved));
        let refill = refill(layout, fence(), 1, reserved, count).unwrap();
        let mut handed_out: Vec<u64> = refill.own.iter().collect();
        let mut unused = 0;
        if let Command::Put { mut number, .. } = refill.command {
            let end = Layout::decode(number).unwrap().end;
            // Move the end of the window halfway through the draws.
            let next = range(start + end, more);
            let mut prepared = false;
            loop {
                number += 3;
                match after_add(layout, 3, Added::Number { number, cas: 1 }) {
                    Next::Take(taken) => {
                        handed_out.extend(taken.range.iter());
                        prepared |= taken.low;
                        if let Some(extend) = prepared.then(|| extend(layout, end, next, LookReply::Number { number, cas: 1 })).flatten() {
                            let Command::Put { number: moved, .. } = extend.command else { panic!("{extend:?}") };
                            unused = more - extend.unused;
                            number = moved;
                        }
                    }
                    Next::Await { .. } | Next::Send(Command::Clear { cas: 1 }) => break,
                    next => prop_assert!(false, "{:?}", next),
                }
            }
        }
        let in_all = reserved.len() - refill.unused + unused;
        let expected: Vec<u64> = (reserved.start()..).take(usize::try_from(in_all).unwrap()).collect();
        prop_assert_eq!(&handed_out, &expected);
    }

    #[test]
    fn a_refill_as_planned_loses_nothing(
        start in 0..50_u64, skip in prop_oneof![0..200_u64, 1_u64 << 26..1 << 45],
        spare in 0..1_000_u64, count in 1..40_u64, size in 1..300_u64,
    ) {
        let (layout, next) = (Layout::new(start), start + skip);
        let planned = layout.refill_of(Some(next), next + spare, count, size);
        let granted = range(next, planned.min(spare + 1));
        prop_assert_eq!(refill(layout, fence(), 1, granted, count).unwrap().unused, 0);
    }

    #[test]
    fn numbers_read_back(digits in 0..1_u64 << 26, scale in 0..=20_u32, left in 0..=Layout::MAX_LEN, drawn in 0..1_u64 << 20) {
        let end = digits << scale;
        prop_assume!(left <= end);
        let number = encoded(end, left);
        let Standing { end: read, left: there, mark } = Layout::decode(number).unwrap();
        prop_assert_eq!((read, there), (end, left));
        prop_assert!(mark <= left / 2 && (left < 2 || mark > left / 4));
        let after = Layout::decode(number + drawn).unwrap();
        prop_assert_eq!((after.end, after.left, after.mark), (end, left.saturating_sub(drawn), mark));
    }
}
