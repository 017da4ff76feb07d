//! The checks, and the sizes of their models.

use crate::cache::{self, CacheWindow};
use crate::datacenter::{Bug, Windows};
use crate::era::{Befalls, Bug as Forgetful, Life};
use crate::explore::{Verdict, breaks, holds};
use crate::fenced::{self, FencedWindow};
use crate::guard::{self, Budget, Guard};
use crate::paxos::{Call, Commit, Level, Paxos};
use crate::promises::{ACCOUNTED, BOUNDED, EXHAUSTED, GROWING, SERVED, TRUSTED, UNIQUE};
use crate::shelf;
use crate::specimen::Specimen;

pub(crate) const HOLDS: &str = "holds";
pub(crate) const CAUGHT: &str = "caught";

pub(crate) struct Check {
    /// The word to print if the check passes.
    pub(crate) word: &'static str,
    pub(crate) name: String,
    pub(crate) run: Box<dyn Fn() -> Verdict + Send + Sync>,
}

/// Whether to explore larger worlds, for a manual run of an hour.
fn large() -> bool {
    std::env::var("IDMILL_PROTOCOL_SIZE").is_ok_and(|size| size == "large")
}

pub(crate) fn check(
    word: &'static str,
    name: &str,
    run: impl Fn() -> Verdict + Send + Sync + 'static,
) -> Check {
    Check { word, name: name.to_owned(), run: Box::new(run) }
}

pub(crate) fn all() -> Vec<Check> {
    [
        caches(),
        fenced_windows(),
        datacenters(),
        lives(),
        levels(),
        guards(),
        guarded_raises(),
        guard_bugs(),
        shelf::checks(),
        specimens(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn caches() -> Vec<Check> {
    let bug = cache::Bug::None;
    let small = CacheWindow {
        processes: 3,
        calls: 4,
        evictions: 2,
        restarts: 1,
        losses: 1,
        strangers: 0,
        ahead: 1,
        max: 20,
        bug,
    };
    let more = CacheWindow { calls: if large() { 6 } else { 5 }, ..small };
    let mut checks = vec![
        check(HOLDS, "cache/three-processes", move || holds(more, 5_000_000)),
        check(HOLDS, "cache/near-the-end", move || holds(CacheWindow { max: 5, ..small }, 60_000)),
        check(HOLDS, "cache/beside-direct-reserves", move || {
            holds(CacheWindow { processes: 2, strangers: 2, ahead: 2, ..small }, 3_500_000)
        }),
    ];
    let two = CacheWindow { processes: 2, calls: 5, evictions: 2, restarts: 1, losses: 0, ..small };
    for (name, bug, promise) in [
        ("cas-used-again-after-a-reconnect", cache::Bug::CasAfterReconnect, GROWING),
        ("unconditional-install", cache::Bug::UnconditionalInstall, GROWING),
        ("reserve-before-winning", cache::Bug::ReserveBeforeWinning, GROWING),
        ("waiter-goes-to-the-store", cache::Bug::WaiterGoesToTheStore, GROWING),
        ("install-sent-again-by-a-proxy", cache::Bug::Resent, UNIQUE),
        ("two-servers-and-a-ring-change", cache::Bug::TwoServers, GROWING),
        ("end-moved-on-without-looking", cache::Bug::ExtendsUnseen, UNIQUE),
        ("end-of-another-window-moved-on", cache::Bug::ExtendsAnother, GROWING),
        ("joined-across-a-gap", cache::Bug::JoinsAcrossAGap, UNIQUE),
    ] {
        checks.push(check(CAUGHT, &format!("cache/{name}"), move || {
            let strangers = u8::from(bug == cache::Bug::JoinsAcrossAGap);
            let calls = if bug == cache::Bug::ExtendsAnother { 6 } else { two.calls };
            breaks(CacheWindow { calls, strangers, bug, ..two }, promise)
        }));
    }
    checks
}

fn fenced_windows() -> Vec<Check> {
    let alone = FencedWindow {
        processes: 2,
        calls: if large() { 4 } else { 3 },
        failovers: 2,
        restarts: 0,
        expiries: 1,
        losses: 1,
        split: false,
        waits: false,
        growing: true,
        max: 24,
        bug: fenced::Bug::None,
    };
    let restarts = FencedWindow { failovers: 1, restarts: 1, expiries: 0, losses: 0, ..alone };
    let split = FencedWindow { split: true, growing: false, expiries: 0, ..alone };
    let waits = FencedWindow { split: true, waits: true, ..alone };
    let mut checks = vec![
        check(HOLDS, "fenced/one-master-at-a-time", move || holds(alone, 150_000)),
        check(HOLDS, "fenced/started-over-an-old-file", move || holds(restarts, 90_000)),
        check(HOLDS, "fenced/two-masters-at-a-time", move || holds(split, 35_000)),
        check(HOLDS, "fenced/two-masters-and-replicas-have-to-know", move || holds(waits, 80_000)),
        check(HOLDS, "fenced/on-into-the-next-range", move || {
            holds(FencedWindow { calls: 6, failovers: 1, losses: 0, ..alone }, 240_000)
        }),
        check(HOLDS, "fenced/near-the-end", move || holds(FencedWindow { max: 3, ..alone }, 35_000)),
    ];
    let small = FencedWindow { calls: 5, restarts: 0, expiries: 0, losses: 0, growing: false, ..alone };
    let growing = FencedWindow { growing: true, ..small };
    for (name, world, bug, promise) in [
        ("no-fence", small, fenced::Bug::NoFence, UNIQUE),
        ("run-alone-and-a-failback", small, fenced::Bug::RunAlone, UNIQUE),
        ("install-without-fence", growing, fenced::Bug::UnfencedInstall, GROWING),
        ("reserve-before-claiming", growing, fenced::Bug::ReserveBeforeClaiming, GROWING),
        (
            "prepared-for-another-range",
            FencedWindow { calls: 6, ..growing },
            fenced::Bug::PreparesForAnother,
            GROWING,
        ),
        // A limit: unless replicas must acknowledge, two simultaneous masters can return ids out of order.
        ("two-masters", FencedWindow { split: true, ..growing }, fenced::Bug::None, GROWING),
    ] {
        let name = format!("fenced/{name}");
        checks.push(check(CAUGHT, &name, move || breaks(FencedWindow { bug, ..world }, promise)));
    }
    checks
}

fn datacenters() -> Vec<Check> {
    let mut checks = vec![
        check(HOLDS, "datacenter/two-processes-each", || {
            let max = if large() { 4 } else { 3 };
            holds(Windows::of(2, max, 1), 940_000)
        }),
        check(HOLDS, "datacenter/two-in-flight", || {
            let processes = if large() { 2 } else { 1 };
            holds(Windows::of(processes, 3, 2), 137_000)
        }),
        check(HOLDS, "datacenter/three-processes-each", || {
            // Use ranges of one id, so that there are several claims.
            let max = if large() { 2 } else { 1 };
            holds(Windows { size: 1, ..Windows::of(3, max, 1) }, 900_000)
        }),
        check(HOLDS, "datacenter/two-ids-at-a-time", || {
            holds(Windows { count: 2, size: 3, ..Windows::of(2, 3, 1) }, 360_000)
        }),
    ];
    let small = Windows::of(2, 2, 1);
    for (name, bug, promise) in [
        ("unknown-taken-as-success", Bug::UnknownTakenAsSuccess, UNIQUE),
        ("blind-retry-without-token", Bug::BlindRetry, ACCOUNTED),
        ("naive-two-step-refill", Bug::NaiveRefill, ACCOUNTED),
        ("install-without-generation", Bug::InstallWithoutGeneration, UNIQUE),
        ("install-if-nothing-is-preloaded", Bug::InstallIfNothingPreloaded, UNIQUE),
        ("claim-by-token-only", Bug::ClaimByTokenOnly, UNIQUE),
        ("end-tested-before-the-claim", Bug::EndTestedFirst, EXHAUSTED),
        ("no-clamp", Bug::NoClamp, BOUNDED),
        ("take-without-condition", Bug::TakeWithoutCondition, UNIQUE),
    ] {
        let name = format!("datacenter/{name}");
        checks.push(check(CAUGHT, &name, move || breaks(small.with(bug), promise)));
    }
    checks
}

fn specimens() -> Vec<Check> {
    let specimen = Specimen { calls: 4, evictions: 1 };
    vec![
        check(CAUGHT, "specimen/no-id-twice", move || breaks(specimen, UNIQUE)),
        check(CAUGHT, "specimen/growing", move || breaks(specimen, GROWING)),
    ]
}

/// The checks of events that happen to rows.
fn lives() -> Vec<Check> {
    let life = |befalls| Life { processes: 2, in_flight: 1, befalls, bug: Forgetful::None };
    // A process that never saw the window cannot detect that the window went back. While an install is in
    // flight, no process can detect this.
    let alone = Life { processes: 1, in_flight: 0, ..life(Befalls::RestoreUnderway) };
    let global = life(Befalls::GlobalRestore);
    vec![
        check(HOLDS, "era/created-and-recalled", move || holds(life(Befalls::Recall), 385_000)),
        check(HOLDS, "era/window-lost", move || holds(Life { in_flight: 0, ..life(Befalls::Loss) }, 7_300)),
        // A limit: the loss of a window is safe only while no write is in flight.
        check(CAUGHT, "era/window-lost-with-its-creation-on-the-way", move || {
            breaks(life(Befalls::Loss), UNIQUE)
        }),
        check(HOLDS, "era/restored-and-recalled", move || holds(life(Befalls::RestoreAndRecall), 628_000)),
        check(CAUGHT, "era/restored-window-served", move || breaks(life(Befalls::Restore), UNIQUE)),
        check(HOLDS, "era/restored-under-a-process", move || holds(alone, 430)),
        check(CAUGHT, "era/no-floor", move || breaks(Life { bug: Forgetful::NoFloor, ..alone }, UNIQUE)),
        check(HOLDS, "era/global-row-restored", move || holds(global, 554_000)),
        check(CAUGHT, "era/claim-unchecked", move || {
            breaks(Life { bug: Forgetful::ClaimUnchecked, ..global }, UNIQUE)
        }),
    ]
}

/// The checks of the levels of conditional writes on one partition.
fn levels() -> Vec<Check> {
    let (serial, local) = (Call::Take(Level::Serial), Call::Take(Level::LocalSerial));
    let paxos = |calls: &[Call], commit, one_by_one, ballots| Paxos {
        calls: calls.to_vec(),
        commit,
        one_by_one,
        next: 1,
        ballots,
        late_is_never: false,
    };
    let mut checks = Vec::new();
    // `at_least`: the minimum number of states to explore; `None` if the check must find a duplicate.
    let mut mixed = |name: &str, commit, paxos: Paxos, at_least: Option<usize>| {
        let name = format!("levels/{name}-commit-{commit:?}");
        checks.push(match at_least {
            None => check(CAUGHT, &name, move || breaks(paxos.clone(), UNIQUE)),
            Some(states) => check(HOLDS, &name, move || holds(paxos.clone(), states)),
        });
    };
    for (commit, far, near) in [
        (Commit::LocalQuorum, None, Some(57_000)),
        (Commit::Quorum, Some(39_000), None),
        (Commit::EachQuorum, Some(27_000), Some(30_000)),
        (Commit::All, Some(2_700), Some(3_500)),
    ] {
        mixed("local-then-serial", commit, paxos(&[local, serial], commit, true, 3), far);
        mixed("serial-then-local", commit, paxos(&[serial, local], commit, true, 3), near);
        mixed("local-beside-serial", commit, paxos(&[local, serial], commit, false, 2), None);
    }
    let quorum = Commit::LocalQuorum;
    mixed("local-alone", quorum, paxos(&[local, local], quorum, false, 5), Some(1_200_000));
    mixed("serial-alone", quorum, paxos(&[serial, serial], quorum, false, 2), Some(3_200_000));
    let (refill, read) = (Call::Refill(Level::Serial), Call::Read(Level::Serial));
    let published =
        Paxos { next: 0, late_is_never: true, ..paxos(&[refill, local, read, local], quorum, true, 4) };
    mixed("published-scheme", quorum, published, None);
    checks
}

/// No events but reserves.
fn quiet_guard() -> Budget {
    Budget {
        calls: if large() { 4 } else { 3 },
        backs: 0,
        witness_backs: 0,
        losses: 0,
        crashes: 0,
        refusals: 0,
        resets: 0,
        epochs: 0,
        unguarded: 0,
        removals: 0,
        announced_resets: 0,
        raises: 0,
    }
}

fn two_guarded(budget: Budget) -> Guard {
    Guard { processes: 2, budget, forgets: false, kept: 1, bug: guard::Bug::None }
}

fn guards() -> Vec<Check> {
    let (nothing, two) = (quiet_guard(), two_guarded);
    let back = Budget { backs: 1, ..nothing };
    let faults = Budget { losses: 1, crashes: 1, ..back };
    let removed = Budget { removals: 1, ..back };
    let reset = Budget { announced_resets: 1, ..back };
    vec![
        check(HOLDS, "guard/the-store-goes-back", move || holds(two(faults), 200_000)),
        check(HOLDS, "guard/the-store-goes-back-twice", move || {
            holds(two(Budget { backs: 2, losses: 0, ..faults }), 165_000)
        }),
        check(HOLDS, "guard/set-back-by-hand", move || holds(two(Budget { resets: 1, ..faults }), 880_000)),
        check(HOLDS, "guard/revoked", move || holds(two(Budget { epochs: 1, losses: 0, ..faults }), 500_000)),
        check(HOLDS, "guard/restored-elsewhere-twice", move || {
            holds(two(Budget { backs: 2, epochs: 1, ..nothing }), 980_000)
        }),
        check(HOLDS, "guard/reset", move || holds(two(Budget { crashes: 1, ..reset }), 800_000)),
        check(HOLDS, "guard/reset-with-lost-replies", move || {
            holds(two(Budget { losses: 1, ..reset }), 1_800_000)
        }),
        check(HOLDS, "guard/reset-refused", move || holds(two(Budget { refusals: 1, ..reset }), 700_000)),
        check(HOLDS, "guard/reset-and-revoked", move || {
            holds(two(Budget { calls: 2, epochs: 1, ..reset }), 150_000)
        }),
        check(HOLDS, "guard/removed", move || holds(two(Budget { crashes: 1, ..removed }), 930_000)),
        check(HOLDS, "guard/removed-with-lost-replies", move || {
            holds(two(Budget { losses: 1, ..removed }), 1_650_000)
        }),
        check(HOLDS, "guard/removal-refused", move || holds(two(Budget { refusals: 1, ..removed }), 850_000)),
        check(HOLDS, "guard/removed-and-forgotten", move || {
            holds(Guard { forgets: true, ..two(removed) }, 420_000)
        }),
        check(HOLDS, "guard/recreated-beside-others", move || {
            holds(Guard { processes: 3, ..two(Budget { backs: 0, crashes: 1, ..removed }) }, 300_000)
        }),
        check(HOLDS, "guard/claims-that-fail", move || holds(two(Budget { refusals: 2, ..back }), 56_000)),
        check(HOLDS, "guard/drawn-unguarded", move || {
            holds(two(Budget { unguarded: 1, losses: 0, ..faults }), 360_000)
        }),
        check(HOLDS, "guard/three-processes", move || holds(Guard { processes: 3, ..two(back) }, 66_000)),
        check(HOLDS, "guard/the-witness-goes-back", move || {
            holds(two(Budget { backs: 0, witness_backs: 1, ..faults }), 340_000)
        }),
        check(HOLDS, "guard/sound-and-removed", move || {
            holds(two(Budget { epochs: 1, removals: 1, unguarded: 1, ..nothing }), 870_000)
        }),
        check(HOLDS, "guard/sound-and-reset", move || {
            holds(two(Budget { epochs: 1, announced_resets: 1, unguarded: 1, ..nothing }), 990_000)
        }),
    ]
}

/// Raises through the guard, and ids that were drawn without it.
fn guarded_raises() -> Vec<Check> {
    let (nothing, two) = (quiet_guard(), two_guarded);
    let back = Budget { backs: 1, ..nothing };
    let raised = Budget { raises: 1, ..back };
    let removed_unguarded = Budget { removals: 1, unguarded: 1, ..nothing };
    vec![
        check(HOLDS, "guard/raised", move || holds(two(Budget { crashes: 1, ..raised }), 1_420_000)),
        check(HOLDS, "guard/raised-with-lost-replies", move || {
            holds(two(Budget { calls: 2, losses: 1, ..raised }), 1)
        }),
        check(HOLDS, "guard/raised-and-removed", move || {
            holds(two(Budget { backs: 0, removals: 1, ..raised }), 1)
        }),
        check(HOLDS, "guard/raised-and-reset", move || {
            holds(two(Budget { calls: 2, backs: 0, announced_resets: 1, ..raised }), 1)
        }),
        check(HOLDS, "guard/removed-after-unguarded-draws", move || holds(two(removed_unguarded), 203_000)),
    ]
}

fn guard_bugs() -> Vec<Check> {
    let (nothing, two) = (quiet_guard(), two_guarded);
    let back = Budget { backs: 1, ..nothing };
    let faults = Budget { losses: 1, crashes: 1, ..back };
    let removed = Budget { removals: 1, ..back };
    let reset = Budget { announced_resets: 1, ..back };
    let raised = Budget { raises: 1, ..back };
    let unguarded = Budget { unguarded: 1, ..back };
    let removed_unguarded = Budget { removals: 1, unguarded: 1, ..nothing };
    let mut checks = Vec::new();
    let quiet = Budget { epochs: 1, removals: 1, ..nothing };
    for (name, budget, bug, promise) in [
        ("mark-alone", faults, guard::Bug::MarkAlone, UNIQUE),
        ("uses-the-unknown", faults, guard::Bug::UsesTheUnknown, UNIQUE),
        ("uses-the-failed", Budget { refusals: 1, ..back }, guard::Bug::UsesTheFailed, UNIQUE),
        ("any-incarnation", faults, guard::Bug::AnyIncarnation, UNIQUE),
        ("any-epoch", reset, guard::Bug::AnyEpoch, UNIQUE),
        ("epoch-forgets", Budget { epochs: 1, ..back }, guard::Bug::EpochForgets, UNIQUE),
        ("pending-opens", Budget { refusals: 1, ..removed }, guard::Bug::PendingOpens, UNIQUE),
        ("removal-forgets", removed, guard::Bug::RemovalForgets, UNIQUE),
        ("resets-when-pending", Budget { crashes: 1, ..reset }, guard::Bug::ResetsWhenPending, UNIQUE),
        ("lookahead", faults, guard::Bug::Lookahead, UNIQUE),
        ("heals-to-its-own-end", faults, guard::Bug::HealsToItsOwnEnd, SERVED),
        ("claims-after-use", faults, guard::Bug::ClaimsAfterUse, UNIQUE),
        ("forgets-the-lowest", Budget { calls: 6, ..back }, guard::Bug::ForgetsTheLowest, UNIQUE),
        ("raises-the-store-only", raised, guard::Bug::RaisesTheStoreOnly, UNIQUE),
        ("removes-without-a-look", removed_unguarded, guard::Bug::RemovesWithoutALook, UNIQUE),
        ("holes-are-free", unguarded, guard::Bug::HolesAreFree, UNIQUE),
        ("nothing-is-given-back", nothing, guard::Bug::NothingIsGivenBack, TRUSTED),
        ("told-last", quiet, guard::Bug::ToldLast, TRUSTED),
        ("alarms-unseen", quiet, guard::Bug::AlarmsUnseen, TRUSTED),
        ("looks-twice", Budget { epochs: 1, ..back }, guard::Bug::LooksTwice, TRUSTED),
    ] {
        let world = Guard { bug, ..two(budget) };
        checks.push(check(CAUGHT, &format!("guard/{name}"), move || breaks(world, promise)));
    }
    checks
}
