//! Every call returns by its deadline, whatever the store does.

use std::time::Duration;

use super::{Case, Verdict};
use crate::history::Draw;

/// The resolution of the runtime's timers, 1 ms, times the number of timers involved.
pub(super) const RESOLUTION: Duration = Duration::from_millis(5);

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    if case.world.hung {
        return Err("a call never returned".to_owned());
    }
    let is_late = |draw: &&Draw| draw.sequence == case.sequence && draw.took > draw.limit + RESOLUTION;
    let late = case.history.draws.iter().find(is_late);
    late.map_or(Ok(()), |draw| Err(format!("answered after its deadline: {draw:?}")))
}
