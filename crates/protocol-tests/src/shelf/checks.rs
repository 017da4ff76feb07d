//! The checks of the shelf, and the sizes of their models.

use super::rules::Shelf;
use super::{Budget, Bug, Failover, Shelves};
use crate::checks::{CAUGHT, Check, HOLDS, check};
use crate::explore::{breaks, holds};
use crate::promises::{KEPT, ORDERED, RAISED, UNIQUE};

pub(crate) fn checks() -> Vec<Check> {
    [models(), guarded_models(), bugs()].into_iter().flatten().collect()
}

/// No events but reserves and returns.
fn quiet() -> Budget {
    Budget { calls: 3, returns: 2, ..Budget::default() }
}

fn two_processes(budget: Budget) -> Shelves {
    Shelves {
        processes: 2,
        budget,
        guarded: false,
        failover: Failover::Refuse,
        most: Shelf::MOST_RANGES,
        kept: 4,
        bug: Bug::None,
        only: None,
    }
}

fn models() -> Vec<Check> {
    let (nothing, two) = (quiet(), two_processes);
    let losses = Budget { losses: 1, ..nothing };
    let faults = Budget { crashes: 1, ..losses };
    let skips = move |budget| Shelves { failover: Failover::Skip, ..two(budget) };
    vec![
        check(HOLDS, "shelf/quiet", move || holds(Shelves { processes: 3, ..two(nothing) }, 13_900)),
        check(HOLDS, "shelf/faults", move || holds(two(faults), 210_000)),
        check(HOLDS, "shelf/small", move || holds(Shelves { most: 1, ..two(faults) }, 200_000)),
        check(HOLDS, "shelf/reset", move || holds(two(Budget { resets: 1, ..losses }), 300_000)),
        check(HOLDS, "shelf/revoked", move || holds(two(Budget { revocations: 1, ..losses }), 300_000)),
        check(HOLDS, "shelf/removed", move || holds(two(Budget { removals: 1, ..losses }), 150_000)),
        check(HOLDS, "shelf/raised", move || holds(two(Budget { raises: 1, ..losses }), 150_000)),
        check(HOLDS, "shelf/raised-and-crashed", move || {
            holds(two(Budget { raises: 1, crashes: 1, ..nothing }), 85_000)
        }),
        check(HOLDS, "shelf/raised-and-reset", move || {
            holds(two(Budget { raises: 1, resets: 1, ..nothing }), 120_000)
        }),
        check(HOLDS, "shelf/restored", move || holds(two(Budget { backs: 1, ..nothing }), 80_000)),
        check(HOLDS, "shelf/failover-refused", move || {
            holds(two(Budget { failovers: 1, raises: 1, ..nothing }), 590_000)
        }),
        check(HOLDS, "shelf/failover-skipped", move || {
            holds(skips(Budget { failovers: 1, ..nothing }), 2_400)
        }),
    ]
}

fn guarded_models() -> Vec<Check> {
    let nothing = quiet();
    let losses = Budget { losses: 1, ..nothing };
    let back = Budget { backs: 1, ..nothing };
    let guarded = |budget| Shelves { guarded: true, ..two_processes(budget) };
    vec![
        check(HOLDS, "shelf/guarded", move || holds(guarded(losses), 110_000)),
        check(HOLDS, "shelf/guarded-and-crashed", move || {
            holds(guarded(Budget { crashes: 1, ..nothing }), 54_000)
        }),
        check(HOLDS, "shelf/guarded-and-quiet", move || {
            holds(Shelves { processes: 3, ..guarded(nothing) }, 89_000)
        }),
        check(HOLDS, "shelf/guarded-and-the-witness-fails", move || {
            holds(guarded(Budget { refusals: 2, ..nothing }), 58_000)
        }),
        check(HOLDS, "shelf/guarded-and-restored", move || holds(guarded(back), 220_000)),
        check(HOLDS, "shelf/guarded-and-restored-with-losses", move || {
            holds(guarded(Budget { calls: 2, returns: 1, losses: 1, ..back }), 30_000)
        }),
        check(HOLDS, "shelf/guarded-and-restored-twice", move || {
            holds(guarded(Budget { calls: 2, backs: 2, ..back }), 470_000)
        }),
        check(HOLDS, "shelf/guarded-and-the-witness-goes-back", move || {
            holds(guarded(Budget { calls: 2, witness_backs: 1, ..nothing }), 80_000)
        }),
        check(HOLDS, "shelf/guarded-with-few-claims", move || {
            holds(Shelves { kept: 1, ..guarded(back) }, 220_000)
        }),
    ]
}

fn bugs() -> Vec<Check> {
    let (nothing, two) = (quiet(), two_processes);
    let losses = Budget { losses: 1, ..nothing };
    let raised = Budget { raises: 1, ..nothing };
    let back = Budget { backs: 1, ..nothing };
    let guarded = move |budget| Shelves { guarded: true, ..two(budget) };
    let failover = Budget { failovers: 1, ..nothing };
    let skips = Shelves { failover: Failover::Skip, ..two(failover) };
    let mut checks = Vec::new();
    for (name, world, bug, promise) in [
        ("returns-again", two(losses), Bug::ReturnsAgain, UNIQUE),
        ("denies-what-it-did", two(nothing), Bug::DeniesWhatItDid, UNIQUE),
        ("shelves-the-unknown", two(losses), Bug::ShelvesTheUnknown, UNIQUE),
        ("uses-the-unknown", two(losses), Bug::UsesTheUnknown, UNIQUE),
        ("no-second-look", two(Budget { resets: 1, ..nothing }), Bug::NoSecondLook, UNIQUE),
        ("looks-first", two(Budget { resets: 1, ..nothing }), Bug::LooksFirst, UNIQUE),
        ("returns-as-current", two(Budget { resets: 1, ..nothing }), Bug::ReturnsAsCurrent, UNIQUE),
        ("leaves-the-last", two(nothing), Bug::LeavesTheLast, UNIQUE),
        ("same-text-twice", two(losses), Bug::SameTextTwice, UNIQUE),
        ("ignores-the-floor", two(nothing), Bug::IgnoresTheFloor, ORDERED),
        ("survives-a-raise", two(raised), Bug::SurvivesARaise, RAISED),
        ("leaves-no-mark", two(raised), Bug::LeavesNoMark, RAISED),
        ("marks-after-the-raise", two(raised), Bug::MarksAfterTheRaise, RAISED),
        ("raises-any-identity", two(Budget { resets: 1, ..raised }), Bug::RaisesAnyIdentity, RAISED),
        ("decides-unseen", two(Budget { failovers: 1, ..raised }), Bug::DecidesUnseen, UNIQUE),
        ("shelf-under-skip", skips, Bug::ShelfUnderSkip, UNIQUE),
        ("look-ignores-the-history", two(failover), Bug::LookIgnoresTheHistory, UNIQUE),
        (
            "compares-the-history-once",
            two(Budget { failovers: 1, ..raised }),
            Bug::ComparesTheHistoryOnce,
            UNIQUE,
        ),
        (
            "no-retry-after-a-lost-race",
            Shelves { processes: 3, ..two(nothing) },
            Bug::NoRetryAfterALostRace,
            KEPT,
        ),
        (
            "shelf-in-the-ledger",
            guarded(Budget { witness_backs: 1, ..nothing }),
            Bug::ShelfInTheLedger,
            UNIQUE,
        ),
        ("uses-unclaimed", guarded(back), Bug::UsesUnclaimed, UNIQUE),
        ("uses-an-unknown-claim", guarded(Budget { losses: 1, ..back }), Bug::UsesAnUnknownClaim, UNIQUE),
        ("unguarded-takes", guarded(Budget { unguarded: 1, ..back }), Bug::UnguardedTakes, UNIQUE),
    ] {
        let world = Shelves { bug, only: Some(promise), ..world };
        checks.push(check(CAUGHT, &format!("shelf/{name}"), move || breaks(world, promise)));
    }
    checks
}
