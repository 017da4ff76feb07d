//! What is explored, at what size.

use crate::cache::{self, CacheWindow};
use crate::datacenter::{Bug, Windows};
use crate::explore::{Verdict, breaks, holds};
use crate::paxos::{Call, Commit, Level, Paxos};
use crate::promises::{ACCOUNTED, BOUNDED, EXHAUSTED, GROWING, UNIQUE};
use crate::specimen::Specimen;

pub(crate) const HOLDS: &str = "holds";
pub(crate) const CAUGHT: &str = "caught";

pub(crate) struct Check {
    /// What to say of it when it passes.
    pub(crate) word: &'static str,
    pub(crate) name: String,
    pub(crate) run: Box<dyn Fn() -> Verdict + Send + Sync>,
}

fn check(word: &'static str, name: &str, run: impl Fn() -> Verdict + Send + Sync + 'static) -> Check {
    Check { word, name: name.to_owned(), run: Box::new(run) }
}

pub(crate) fn all() -> Vec<Check> {
    [caches(), datacenters(), levels(), specimens()].into_iter().flatten().collect()
}

fn caches() -> Vec<Check> {
    let bug = cache::Bug::None;
    let small = CacheWindow { processes: 3, calls: 4, evictions: 2, restarts: 1, losses: 1, max: 20, bug };
    let mut checks = vec![
        check(HOLDS, "cache/three-processes", move || holds(small, 1000)),
        check(HOLDS, "cache/near-the-end", move || holds(CacheWindow { max: 3, ..small }, 1000)),
    ];
    let two = CacheWindow { processes: 2, calls: 5, evictions: 2, restarts: 1, losses: 0, ..small };
    for (name, bug, promise) in [
        ("cas-used-again-after-a-reconnect", cache::Bug::CasAfterReconnect, GROWING),
        ("unconditional-install", cache::Bug::UnconditionalInstall, GROWING),
        ("reserve-before-winning", cache::Bug::ReserveBeforeWinning, GROWING),
        ("waiter-goes-to-the-store", cache::Bug::WaiterGoesToTheStore, GROWING),
        ("install-sent-again-by-a-proxy", cache::Bug::Resent, UNIQUE),
        ("two-servers-and-a-ring-change", cache::Bug::TwoServers, GROWING),
    ] {
        checks.push(check(CAUGHT, &format!("cache/{name}"), move || breaks(CacheWindow { bug, ..two }, promise)));
    }
    checks
}

fn datacenters() -> Vec<Check> {
    let mut checks = vec![
        check(HOLDS, "datacenter/two-processes-each", || holds(Windows::of(2, 2, 1), 1000)),
        check(HOLDS, "datacenter/two-in-flight", || holds(Windows::of(1, 3, 2), 1000)),
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

/// The levels of conditional writes on one partition.
fn levels() -> Vec<Check> {
    let (serial, local) = (Call::Take(Level::Serial), Call::Take(Level::LocalSerial));
    let mut checks = Vec::new();
    for commit in [Commit::LocalQuorum, Commit::Quorum, Commit::EachQuorum, Commit::All] {
        for (calls, one_by_one, bad) in [
            ([local, serial], true, commit == Commit::LocalQuorum),
            ([serial, local], true, commit == Commit::Quorum),
            ([local, serial], false, true),
            ([serial, serial], false, false),
            ([local, local], false, false),
        ] {
            let paxos = Paxos { calls: calls.to_vec(), commit, one_by_one, next: 1, ballots: 3 };
            let how = if one_by_one { "then" } else { "beside" };
            let name = format!("levels/{:?}-{how}-{:?}-commit-{commit:?}", calls[0], calls[1]);
            let word = if bad { CAUGHT } else { HOLDS };
            checks.push(check(word, &name, move || {
                if bad { breaks(paxos.clone(), UNIQUE) } else { holds(paxos.clone(), 100) }
            }));
        }
    }
    let (refill, read) = (Call::Refill(Level::Serial), Call::Read(Level::Serial));
    let calls = vec![refill, local, read, local];
    let published = Paxos { calls, commit: Commit::LocalQuorum, one_by_one: true, next: 0, ballots: 6 };
    checks.push(check(CAUGHT, "levels/published-scheme", move || breaks(published.clone(), UNIQUE)));
    checks
}
