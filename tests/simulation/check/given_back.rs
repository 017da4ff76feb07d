//! A rest is given back once, and whoever gave it back handed out nothing of it.

use std::collections::BTreeSet;

use super::{Case, Verdict};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    let mut seen = BTreeSet::new();
    let given_back = &case.history.given_back;
    for (life, _, rest) in given_back.iter().filter(|(_, name, _)| *name == case.plan.name) {
        if !seen.insert(life) {
            return Err(format!("life {life} gave back twice: {rest:?}"));
        }
        // One number can come of several grants where it was reset.
        if !case.history.reset.contains_key(&case.sequence) {
            unused(case, *life, *rest)?;
        }
    }
    Ok(())
}

fn unused(case: &Case<'_>, life: usize, (start, len): (u64, u64)) -> Verdict {
    let draws = case.history.draws.iter();
    let mut draws = draws.filter(|draw| draw.sequence == case.sequence && draw.life == life);
    // Of a mad store too, nothing above the last id that was granted may have been handed out.
    let used = draws.find(|draw| draw.ids().iter().any(|(id, drawn)| id + (drawn - 1) >= start));
    used.map_or(Ok(()), |draw| Err(format!("gave back {len} ids from {start} on, but handed out {draw:?}")))
}
