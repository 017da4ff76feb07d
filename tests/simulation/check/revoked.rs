//! No call that begins after a revocation gets an id that was reserved before the revocation.

use std::collections::BTreeMap;

use super::{Case, Verdict};
use crate::history::{Draw, Span};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    if case.history.reset.contains_key(&case.sequence) || case.has_nonsense() {
        // Grants may repeat ids after a reset or a fault.
        return Ok(());
    }
    let mut revoked: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (life, _, tick) in case.history.revoked.iter().filter(|(_, sequence, _)| *sequence == case.sequence) {
        revoked.entry(*life).or_default().push(*tick);
    }
    revoked.into_iter().try_for_each(|(life, ticks)| each_life(case, life, &ticks))
}

fn each_life(case: &Case<'_>, life: usize, revoked: &[u64]) -> Verdict {
    let sent = case.history.sent.iter().filter(|sent| sent.sequence == case.sequence && sent.life == life);
    let grants: Vec<(Span, u64)> = sent
        .filter_map(|sent| sent.grant.map(|grant| ((grant.range.start(), grant.range.len()), sent.tick)))
        .collect();
    let draws = case.history.draws.iter();
    for draw in draws.filter(|draw| draw.sequence == case.sequence && draw.life == life) {
        let before = revoked.partition_point(|tick| *tick < draw.began);
        let Some(revoked) = before.checked_sub(1).map(|last| revoked[last]) else { continue };
        each_draw(draw, &grants, revoked)?;
    }
    Ok(())
}

fn each_draw(draw: &Draw, grants: &[(Span, u64)], revoked: u64) -> Verdict {
    for (id, _) in draw.ids() {
        // Ids that were given back can be granted again.
        let of_it = |((start, len), _): &&(Span, u64)| (*start..=start + (len - 1)).contains(id);
        let sent = grants.iter().rev().find(of_it).map(|(_, sent)| *sent);
        if sent.is_none_or(|sent| sent < revoked) {
            return Err(format!("revoked at {revoked}, sent at {sent:?}: {draw:?}"));
        }
    }
    Ok(())
}
