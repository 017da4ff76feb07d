//! The store is called no more often than needed, and for no more ids than needed.

use super::{Case, Verdict};
use crate::history::{Left, Outcome};
use crate::plan::Sizing;

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    let mut left = case.history.left.iter().filter(|left| left.sequence == case.sequence);
    match case.plan.sizing {
        Sizing::Fixed { step, watermark } => left.try_for_each(|left| each_left(case, left, step, watermark)),
        Sizing::Adaptive { max_buffered, .. } => {
            match left.find(|left| left.snapshot.remaining > max_buffered) {
                Some(left) => {
                    Err(format!("life {}: more ids in memory than allowed: {:?}", left.life, left.snapshot))
                }
                None => Ok(()),
            }
        }
    }
}

fn each_left(case: &Case<'_>, left: &Left, step: u64, watermark: u64) -> Verdict {
    let (life, snapshot) = (left.life, &left.snapshot);
    if case.plan.order == idmill::Order::Global {
        return match snapshot.remaining {
            0 => Ok(()),
            _ => Err(format!("life {life}: Global keeps ids in memory: {snapshot:?}")),
        };
    }
    // Allow two more reserves: the last one before the max, and one in flight. Each failure and each reset
    // allows more.
    let short = 2 + case.history.reset.len() as u64 * 8;
    let most = snapshot.granted.div_ceil(step) + 2 * snapshot.failures + short;
    if snapshot.reserves > most && !case.has_nonsense() {
        return Err(format!("life {life}: {} reserves, at most {most}: {snapshot:?}", snapshot.reserves));
    }
    // Ids that were reserved for callers that gave up stay in memory for others.
    let draws = case.history.draws.iter();
    let draws = draws.filter(|draw| draw.sequence == case.sequence && draw.life == life);
    let given_up: u64 =
        draws.filter(|draw| !matches!(draw.outcome, Outcome::Ids(_))).map(|draw| draw.want).sum();
    if snapshot.remaining > step + watermark + given_up {
        return Err(format!("life {life}: more ids in memory than step and watermark: {snapshot:?}"));
    }
    Ok(())
}
