//! Readiness is false exactly when draws fail or are about to, and one sequence's own error affects no other:
//! an observer that knows the fault compares each report with the draws of that time.

mod check;
mod plan;
mod world;

use plan::Plan;

fn run(seed: u64) -> Result<(), String> {
    let plan = Plan::of(seed);
    let seen = crate::on_its_own_clock(world::run(&plan));
    check::all(&plan, &seen).map_err(|fault| format!("truth: {fault}; {plan:?}"))
}

#[test]
fn every_promise_of_readiness_holds() {
    crate::every_world_holds(run);
}
