//! No id is handed out more often than it was granted: once per identity.
//!
//! The check counts by range: each granted range adds one at its start and subtracts one at its end, each
//! handed-out range does the opposite, and the sum must never be negative.

use std::collections::{BTreeMap, BTreeSet};

use idmill::store::Grant;

use super::{Case, Verdict};
use crate::history::Span;

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    let granted = case.world.store.granted(&case.plan.name);
    store_is_honest(&granted)?;
    let drawn: Vec<Span> = draws(case, None).collect();
    covered(granted.iter().map(span), drawn).map_err(|id| format!("id {id} was handed out twice"))?;
    let lives: BTreeSet<usize> = case.history.draws.iter().map(|draw| draw.life).collect();
    lives.into_iter().try_for_each(|life| each_life_uses_its_own(case, life))
}

/// The store's grants of one identity share no id. Otherwise the other checks would prove nothing.
fn store_is_honest(granted: &[Grant]) -> Verdict {
    let mut reached = BTreeMap::new();
    for grant in granted {
        let identity = (grant.identity.incarnation, grant.identity.epoch);
        let end = reached.insert(identity, grant.range.end()).unwrap_or_default();
        if u128::from(grant.range.start()) < end {
            return Err(format!("the store granted {:?} twice", grant.range));
        }
    }
    Ok(())
}

fn each_life_uses_its_own(case: &Case<'_>, life: usize) -> Verdict {
    let sent = case.history.sent.iter().filter(|sent| sent.sequence == case.sequence && sent.life == life);
    let heard: BTreeSet<_> = sent
        .filter_map(|sent| sent.grant)
        // A grant that a faulty store repeats counts once.
        .map(|grant| (grant.identity.incarnation, grant.identity.epoch, span(&grant)))
        .collect();
    let heard = heard.into_iter().map(|(_, _, span)| span);
    let drawn: Vec<Span> = draws(case, Some(life)).collect();
    covered(heard, drawn).map_err(|id| format!("life {life} handed out id {id}, which it was not granted"))
}

pub(super) fn draws<'a>(case: &'a Case<'_>, life: Option<usize>) -> impl Iterator<Item = Span> + 'a {
    let draws = case.history.draws.iter().filter(move |draw| draw.sequence == case.sequence);
    let draws = draws.filter(move |draw| life.is_none_or(|life| life == draw.life));
    draws.flat_map(|draw| draw.ids().iter().copied())
}

pub(super) fn span(grant: &Grant) -> Span {
    (grant.range.start(), grant.range.len())
}

/// Fails with the first id that is drawn more often than it was granted.
pub(super) fn covered(granted: impl IntoIterator<Item = Span>, drawn: Vec<Span>) -> Result<(), u128> {
    let mut steps: BTreeMap<u128, i64> = BTreeMap::new();
    let mut add = |(start, len): Span, weight: i64| {
        *steps.entry(u128::from(start)).or_default() += weight;
        *steps.entry(u128::from(start) + u128::from(len)).or_default() -= weight;
    };
    granted.into_iter().for_each(|span| add(span, 1));
    for span in drawn {
        add(span, -1);
    }
    let mut balance = 0;
    for (id, step) in steps {
        balance += step;
        if balance < 0 {
            return Err(id);
        }
    }
    Ok(())
}
