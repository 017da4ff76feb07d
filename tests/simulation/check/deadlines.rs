//! Every call returns by its deadline, whatever the store does.

use std::time::Duration;

use super::{Case, Verdict};

/// The resolution of the runtime's timers, 1 ms, times the number of timers involved.
const RESOLUTION: Duration = Duration::from_millis(5);

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    if case.world.hung {
        return Err("a call never returned".to_owned());
    }
    let most = case.plan.timeout + RESOLUTION;
    let late = case.history.draws.iter().find(|draw| draw.sequence == case.sequence && draw.took > most);
    late.map_or(Ok(()), |draw| Err(format!("answered after more than {most:?}: {draw:?}")))
}
