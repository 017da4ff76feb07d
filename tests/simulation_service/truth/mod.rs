//! Readiness is false exactly when draws fail or are about to, and one sequence's own error affects no other.
//! The check has the planned fault, and compares each report with the draws of that time.

mod check;
mod plan;
mod world;

use plan::Plan;

/// A wrong rule of readiness, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// The worst sequence decides.
    WorstDecides,
    /// Only an answer of the store counts as a failure.
    PendingIsHealthy,
    /// A process that was not ready stays so.
    NeverRecovers,
}

fn run(seed: u64, bug: Bug) -> Result<(), String> {
    let plan = Plan::of(seed);
    let seen = crate::on_its_own_clock(world::run(&plan, bug));
    check::all(&plan, &seen).map_err(|fault| format!("{fault}; {plan:?}"))
}

#[test]
fn every_promise_of_readiness_holds() {
    crate::every_world_holds(|seed| run(seed, Bug::None));
}

#[test]
fn wrong_rules_of_readiness_are_found() {
    for (bug, fault) in [
        (Bug::WorstDecides, "only one sequence fails"),
        (Bug::PendingIsHealthy, "ready, although draws fail"),
        (Bug::NeverRecovers, "not ready after the store's recovery"),
    ] {
        crate::found(&bug, fault, |seed| run(seed, bug));
    }
}
