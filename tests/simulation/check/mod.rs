//! The promises that must hold after a run, one per file.

mod deadlines;
mod ended;
mod flights;
mod gaps;
mod given_back;
mod idle;
mod lost;
mod order;
pub(crate) mod progress;
mod reserves;
mod revoked;
mod unique;
mod waits;

use crate::history::History;
use crate::plan::SequencePlan;
use crate::world::World;

/// The result of one check: the broken promise, if any.
pub(crate) type Verdict = Result<(), String>;

/// One sequence of a run.
pub(crate) struct Case<'a> {
    pub(crate) world: &'a World,
    pub(crate) history: &'a History,
    pub(crate) sequence: usize,
    pub(crate) plan: &'a SequencePlan,
}

type Check = fn(&Case<'_>) -> Verdict;

const CHECKS: [(&str, Check); 12] = [
    ("unique", unique::check),
    ("order", order::check),
    ("gaps", gaps::check),
    ("given back", given_back::check),
    ("reserves", reserves::check),
    ("revoked", revoked::check),
    ("deadlines", deadlines::check),
    ("flights", flights::check),
    ("ended", ended::check),
    ("waits", waits::check),
    ("idle", idle::check),
    ("progress", progress::check),
];

/// The checks that hold even after the store has lost data.
const OF_LOSSES: [(&str, Check); 3] =
    [("lost", lost::check), ("deadlines", deadlines::check), ("flights", flights::check)];

/// Runs every check on every sequence. Returns the first that fails, by name.
pub(crate) fn all(world: &World) -> Verdict {
    let history = world.history.lock();
    for (sequence, plan) in world.plan.sequences.iter().enumerate() {
        let case = Case { world, history: &history, sequence, plan };
        let checks: &[(&str, Check)] = if world.plan.losses.is_empty() { &CHECKS } else { &OF_LOSSES };
        for (name, check) in checks {
            check(&case).map_err(|fault| format!("{name}: {fault}; sequence {plan:?}"))?;
        }
    }
    Ok(())
}

impl Case<'_> {
    /// Whether the store also returns invalid grants. Such a grant is rejected, and only counts as a
    /// failure.
    fn has_nonsense(&self) -> bool {
        self.world.plan.nonsense
    }
}
