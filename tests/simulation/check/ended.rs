//! Closed is for ever, and so is exhausted unless an administrator changes the sequence.

use std::collections::BTreeMap;

use idmill::{ErrorKind, Order};

use super::{Case, Verdict};
use crate::history::{Draw, Outcome};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    let mut ends: BTreeMap<usize, &Draw> = BTreeMap::new();
    for draw in case.history.draws.iter().filter(|draw| draw.sequence == case.sequence) {
        let end = ends.get(&draw.life).filter(|end| end.ended < draw.began);
        if let (Some(end), false) = (end, draw.ids().is_empty()) {
            return Err(format!("ids after the end: {end:?}, then {draw:?}"));
        }
        if is_end(case, draw) {
            ends.entry(draw.life).or_insert(draw);
        }
    }
    Ok(())
}

fn is_end(case: &Case<'_>, draw: &Draw) -> bool {
    match draw.outcome {
        Outcome::Refused(ErrorKind::Closed) => true,
        // A thread or a lease may have ids for itself after others hear of the end; a `take` may have wanted
        // too many; and a mad store may grant again what nobody had the first time.
        Outcome::Refused(ErrorKind::Exhausted) if !case.has_nonsense() => {
            case.plan.order != Order::Thread
                && draw.want == 1
                && !case.history.reset.contains_key(&case.sequence)
        }
        _ => false,
    }
}
