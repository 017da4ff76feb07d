//! Before a process gives a range back, it has handed out no id of the range. Later it cannot, unless the ids
//! are granted to it again (see `unique`).

use super::{Case, Verdict};
use crate::history::Back;

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    // After a reset, several grants may contain the same id.
    if case.history.reset.contains_key(&case.sequence) {
        return Ok(());
    }
    let mut given_back = case.history.given_back.iter().filter(|back| back.name == case.plan.name);
    given_back.try_for_each(|back| unused(case, back))
}

fn unused(case: &Case<'_>, back: &Back) -> Verdict {
    let (life, (start, len), tick) = (back.life, back.rest, back.tick);
    let draws = case.history.draws.iter();
    let mut draws =
        draws.filter(|draw| draw.sequence == case.sequence && draw.life == life && draw.ended < tick);
    // Even with a faulty store, no id at or above the start of the rest may have been handed out.
    let used = draws.find(|draw| draw.ids().iter().any(|(id, drawn)| id + (drawn - 1) >= start));
    used.map_or(Ok(()), |draw| Err(format!("gave back {len} ids from {start} on, but handed out {draw:?}")))
}
