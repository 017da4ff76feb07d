//! `Closed` is final. So is `Exhausted`, unless an administrator changes the sequence.

use std::collections::BTreeMap;
use std::time::Duration;

use idmill::{ErrorKind, Order};

use super::{Case, Verdict};
use crate::history::{Draw, Outcome};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    let mut ends: BTreeMap<usize, &Draw> = BTreeMap::new();
    for draw in case.history.draws.iter().filter(|draw| draw.sequence == case.sequence) {
        let end = ends.get(&draw.life).filter(|end| end.ended < draw.began && !has_more(case, end, draw));
        if let (Some(end), false) = (end, draw.ids().is_empty()) {
            return Err(format!("ids after the end: {end:?}, then {draw:?}"));
        }
        if is_end(case, draw) {
            ends.entry(draw.life).or_insert(draw);
        }
    }
    Ok(())
}

/// How long an exhausted sequence fails without another reserve.
const END_STANDS: Duration = Duration::from_secs(30);

/// Whether the store had ids again, and this process called it again: a process gave ids back, and a
/// revocation cleared the end, or enough time has passed.
fn has_more(case: &Case<'_>, end: &Draw, draw: &Draw) -> bool {
    let is_after = |tick: u64| end.began < tick && tick < draw.ended;
    let is_revoked = |(life, sequence, tick): &(usize, usize, u64)| {
        *life == draw.life && *sequence == case.sequence && is_after(*tick)
    };
    let backs = || case.history.given_back.iter().filter(|back| back.name == case.plan.name);
    let is_doubted = draw.end() >= end.end() + END_STANDS;
    end.outcome == Outcome::Refused(ErrorKind::Exhausted)
        && (case.history.revoked.iter().any(is_revoked) && backs().any(|back| is_after(back.tick))
            // A give-back may arrive long after it was sent.
            || is_doubted && backs().any(|back| back.tick < draw.ended))
}

fn is_end(case: &Case<'_>, draw: &Draw) -> bool {
    match draw.outcome {
        Outcome::Refused(ErrorKind::Closed) => true,
        // Exhaustion is not final if a thread or block still has ids, a `take` requested too many, the
        // sequence was reset, or a faulty store grants lost ids again.
        Outcome::Refused(ErrorKind::Exhausted) if !case.has_nonsense() => {
            case.plan.order != Order::Thread
                && draw.want == 1
                && !case.history.reset.contains_key(&case.sequence)
        }
        _ => false,
    }
}
