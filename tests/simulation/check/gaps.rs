//! Every granted id was handed out or given back, is in memory, or is counted as a gap.

use idmill::Order;
use idmill::store::Grant;

use super::{Case, Verdict};
use crate::history::Left;

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    lost_on_the_way(case)?;
    let left = case.history.left.iter().filter(|left| left.sequence == case.sequence);
    left.into_iter().try_for_each(|left| each_left(case, left))
}

/// Granted ids that no process received were requested by failed reserves, or by reserves in flight at a
/// crash.
fn lost_on_the_way(case: &Case<'_>) -> Verdict {
    let granted: u128 = case.world.store.granted(&case.plan.name).iter().map(len).sum();
    let sent = case.history.sent.iter().filter(|sent| sent.sequence == case.sequence);
    let (mut heard, mut unheard) = (0_u128, 0_u128);
    for sent in sent {
        match &sent.grant {
            Some(grant) => heard += len(grant),
            // For a reserve without an answer, a faulty store may have granted one id more than requested.
            None => unheard += u128::from(sent.count) + 1,
        }
    }
    if granted <= heard + unheard {
        return Ok(());
    }
    Err(format!("{granted} granted, {heard} received, at most {unheard} lost in flight"))
}

fn len(grant: &Grant) -> u128 {
    u128::from(grant.range.len())
}

/// Checks the snapshot of a process that has finished with a sequence.
fn each_left(case: &Case<'_>, left: &Left) -> Verdict {
    let snapshot = &left.snapshot;
    let draws = case.history.draws.iter();
    let draws = draws.filter(|draw| draw.sequence == case.sequence && draw.life == left.life);
    let had: u64 = draws.flat_map(|draw| draw.ids().iter().map(|(_, len)| len)).sum();
    let gaps = snapshot.gaps;
    let known = snapshot.drawn
        + snapshot.remaining
        + snapshot.given_back
        + gaps.revoked
        + gaps.abandoned
        + gaps.dropped;
    let fault = if snapshot.drawn < had {
        "more ids were handed out than counted"
    } else if case.plan.order != Order::Thread && snapshot.drawn > had {
        "more ids were counted than handed out"
    } else if snapshot.drawn - had > case.plan.block {
        // Only one thread exists, so at most one thread block has ids. Blocks are dropped with their callers.
        "more ids were counted than handed out and in the thread block"
    } else if known > snapshot.granted {
        "more ids are accounted for than were granted"
    } else if known < snapshot.granted {
        "ids are missing"
    } else {
        return Ok(());
    };
    Err(format!("life {}: {fault}: {had} handed out, {snapshot:?}", left.life))
}
