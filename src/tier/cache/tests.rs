use super::*;
use proptest::prelude::*;

fn blocks(start: u64, len: u64) -> Blocks {
    Blocks::new(start, len).unwrap()
}

fn range(start: u64, len: u64) -> Range {
    Range::new(start, len).unwrap()
}

fn number(block: u64, offset: u64) -> Added {
    Added::Number { number: Blocks::encode(block, offset), cas: 7 }
}

/// The fence of the stub with cas 9 on connection 1.
fn fence() -> Fence {
    match after_look(blocks(0, 1), 1, Seen::Won { cas: 9 }) {
        Next::Refill(fence) => fence,
        next => panic!("{next:?}"),
    }
}

#[test]
fn a_draw_takes_what_its_addition_moved_over_as_far_as_the_block_goes() {
    let ten = blocks(1, 10);
    assert_eq!(after_add(ten, 3, number(0, 3)), Next::Take(range(1, 3)));
    assert_eq!(after_add(ten, 3, number(2, 9)), Next::Take(range(27, 3)));
    assert_eq!(after_add(ten, 3, number(2, 12)), Next::Take(range(30, 1)));
    assert_eq!(after_add(ten, 3, number(2, 13)), Next::Send(Command::Clear { cas: 7 }));
    assert_eq!(after_add(ten, 3, number(2, 1 << 31)), Next::Send(Command::Clear { cas: 7 }));
    assert_eq!(after_add(ten, 3, Added::Missing), Next::Send(Command::Look));
    assert_eq!(after_add(ten, 3, Added::NotANumber), Next::Wait);
}

#[test]
fn a_number_that_is_not_ours_hands_out_nothing() {
    assert_eq!(after_add(blocks(1, 10), 3, number(2, 2)), Next::Foreign, "it was below zero before");
    assert_eq!(after_add(blocks(u64::MAX, 10), 1, number(1, 1)), Next::Foreign, "beyond 2^64");
    assert_eq!(after_add(blocks(u64::MAX, 10), 3, number(0, 3)), Next::Foreign, "reaches beyond 2^64");
    assert_eq!(after_look(blocks(1, 10), 1, Seen::Foreign), Next::Foreign);
}

#[test]
fn a_number_tells_the_next_id() {
    let ten = blocks(1, 10);
    assert_eq!(ten.next_of(Blocks::encode(4, 9)), Some(50));
    assert_eq!(ten.next_of(Blocks::encode(4, 10)), None, "dry");
    assert_eq!(blocks(u64::MAX, 10).next_of(Blocks::encode(1, 0)), None, "beyond 2^64");
}

#[test]
fn a_look_wins_waits_draws_or_clears_but_never_adds_while_dry() {
    let ten = blocks(1, 10);
    assert_eq!(after_look(ten, 1, Seen::Stub), Next::Wait);
    let seen = |offset| Seen::Number { number: Blocks::encode(4, offset), cas: 8 };
    assert_eq!(after_look(ten, 1, seen(9)), Next::Draw);
    assert_eq!(after_look(ten, 1, seen(10)), Next::Send(Command::Clear { cas: 8 }));
    assert_eq!(after_look(ten, 1, seen(11)), Next::Send(Command::Clear { cas: 8 }));
}

#[test]
fn a_fence_is_worth_nothing_on_another_connection() {
    assert_eq!((fence().cas_on(1), fence().cas_on(2)), (Some(9), None));
    assert_eq!(refill(blocks(1, 10), fence(), 2, range(1, 10), 1), None);
}

#[test]
fn a_whole_block_goes_to_the_window_without_the_winners_ids() {
    let number = Blocks::encode(3, 4);
    let whole = Refill { command: Command::Put { cas: 9, number }, own: range(31, 4), unused: 0 };
    assert_eq!(refill(blocks(1, 10), fence(), 1, range(31, 10), 4), Some(whole));
    let end = u64::MAX - 9;
    let last = refill(blocks(end, 10), fence(), 1, range(end, 10), 2).unwrap();
    assert_eq!(last.command, Command::Put { cas: 9, number: 2 }, "up to 2^64 - 1");
}

#[test]
fn the_end_of_a_block_goes_to_the_window_and_what_is_beyond_is_lost() {
    let number = Blocks::encode(3, 7);
    let put = Refill { command: Command::Put { cas: 9, number }, own: range(36, 2), unused: 5 };
    assert_eq!(refill(blocks(1, 10), fence(), 1, range(36, 10), 2), Some(put));
    let short = refill(blocks(1, 10), fence(), 1, range(39, 10), 5).unwrap();
    assert_eq!((short.own, short.unused), (range(39, 2), 8));
}

#[test]
fn what_does_not_reach_the_end_of_a_block_is_the_winners_alone() {
    let tail = Refill { command: Command::Release { cas: 9 }, own: range(31, 4), unused: 1 };
    assert_eq!(refill(blocks(1, 10), fence(), 1, range(31, 5), 4), Some(tail));
    let beyond = blocks(1, 10).reach();
    let beyond = range(u64::try_from(beyond).unwrap(), 10);
    assert!(matches!(refill(blocks(1, 10), fence(), 1, beyond, 1).unwrap().command, Command::Release { .. }));
    assert_eq!(refill(blocks(100, 10), fence(), 1, range(1, 10), 1), None, "not of this sequence");
}

#[test]
fn a_refill_reserves_to_the_end_of_the_block_and_near_the_last_id_only_what_is_wanted() {
    let ten = blocks(1, 10);
    assert_eq!(ten.refill_of(Some(1), 100, 3), 10);
    assert_eq!(ten.refill_of(Some(37), 100, 3), 4);
    assert_eq!(ten.refill_of(Some(91), 100, 3), 10);
    assert_eq!(ten.refill_of(Some(91), 99, 3), 3);
    assert_eq!(ten.refill_of(None, 100, 3), 3);
    assert_eq!(ten.refill_of(Some(u64::MAX), u64::MAX, 3), 3);
    let beyond = u64::try_from(ten.reach()).unwrap();
    assert_eq!(ten.refill_of(Some(beyond - 1), u64::MAX, 3), 1);
    assert_eq!(ten.refill_of(Some(beyond), u64::MAX, 3), 3);
}

#[test]
fn no_number_of_ours_spills_over_or_wraps() {
    let most = Blocks::MAX_LEN + (Blocks::MOST_DRY + 1) * Blocks::MAX_DRAW;
    assert!(most <= 1 << 32, "{most}");
    assert!(Blocks::MOST_DRY > 60_000);
    let last = Blocks::encode(Blocks::MAX_BLOCK, Blocks::MAX_LEN);
    assert!(last.checked_add(2 * Blocks::MAX_LEN).is_some());
    assert_eq!(Blocks::new(1, 0), None);
    assert_eq!(Blocks::new(1, Blocks::MAX_LEN + 1), None);
    assert_eq!(blocks(1, Blocks::MAX_LEN).draw_of(u64::MAX), Blocks::MAX_DRAW);
    assert_eq!(blocks(1, 10).draw_of(11), 10);
    assert_eq!(blocks(1, 10).draw_of(0), 1);
}

proptest! {
    /// Ids of a refill lie in exactly one of three places, and those in the window are the very ids that draws find there.
    #[test]
    fn a_refill_hands_out_each_reserved_id_once(
        start in prop_oneof![0..50_u64, u64::MAX - 400..u64::MAX - 300],
        len in 1..30_u64, skip in 0..200_u64, reserved in 1..60_u64, count in 1..40_u64,
    ) {
        let (blocks, reserved) = (blocks(start, len), range(start + skip, reserved));
        let refill = refill(blocks, fence(), 1, reserved, count).unwrap();
        let mut handed_out: Vec<u64> = refill.own.ids().collect();
        if let Command::Put { mut number, .. } = refill.command {
            loop {
                number += 3;
                match after_add(blocks, 3, Added::Number { number, cas: 1 }) {
                    Next::Take(range) => handed_out.extend(range.ids()),
                    next => { prop_assert_eq!(next, Next::Send(Command::Clear { cas: 1 })); break }
                }
            }
        }
        let expected: Vec<u64> = reserved.ids().take(handed_out.len()).collect();
        prop_assert_eq!(&handed_out, &expected);
        prop_assert_eq!(handed_out.len() as u64 + refill.unused, reserved.len());
    }

    #[test]
    fn a_refill_as_planned_loses_nothing(
        start in 0..50_u64, len in 1..30_u64, skip in 0..200_u64, spare in 0..100_u64, count in 1..40_u64,
    ) {
        let (blocks, next) = (blocks(start, len), start + skip);
        let planned = blocks.refill_of(Some(next), next + spare, count);
        let granted = range(next, planned.min(spare + 1));
        prop_assert_eq!(refill(blocks, fence(), 1, granted, count).unwrap().unused, 0);
    }

    #[test]
    fn numbers_read_back(block in 0..=Blocks::MAX_BLOCK, drawn in 0..1_u64 << 32) {
        prop_assert_eq!(Blocks::decode(Blocks::encode(block, drawn)), (block, drawn));
    }
}
