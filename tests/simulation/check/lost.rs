//! A store that has lost committed data: a process hands out no id twice, and does not recreate a sequence
//! that it was granted ids of.
//!
//! Ids that were granted to other processes may repeat. So each life is checked separately: within one
//! identity an id counts once, however often it was granted.

use std::collections::{BTreeMap, BTreeSet};

use idmill::store::Grant;

use super::unique::{covered, draws, span};
use super::{Case, Verdict};
use crate::history::{Sent, Span};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    let sent = case.history.sent.iter().filter(|sent| sent.sequence == case.sequence);
    let mut lives: BTreeMap<usize, Vec<&Sent>> = BTreeMap::new();
    sent.for_each(|sent| lives.entry(sent.life).or_default().push(sent));
    lives.into_iter().try_for_each(|(life, sent)| each_life(case, life, &sent))
}

fn each_life(case: &Case<'_>, life: usize, sent: &[&Sent]) -> Verdict {
    let first = sent.iter().position(|sent| sent.grant.is_some()).unwrap_or(sent.len());
    if let Some(anew) = sent.iter().skip(first + 1).find(|sent| sent.creates) {
        return Err(format!("life {life} could create a sequence again after a grant: {anew:?}"));
    }
    let heard = sent.iter().filter_map(|sent| sent.grant);
    let drawn: Vec<Span> = draws(case, Some(life)).collect();
    covered(each_once(heard), drawn).map_err(|id| format!("life {life} handed out id {id} twice"))
}

/// The ids of each identity, without duplicates.
fn each_once(grants: impl Iterator<Item = Grant>) -> Vec<Span> {
    let mut by_identity: BTreeMap<(u64, u64), BTreeSet<Span>> = BTreeMap::new();
    for grant in grants {
        let identity = (grant.identity.incarnation, grant.identity.epoch);
        by_identity.entry(identity).or_default().insert(span(&grant));
    }
    let mut all = Vec::new();
    for spans in by_identity.into_values() {
        let mut end = 0_u128;
        for (start, len) in spans {
            let (from, past) = (u128::from(start).max(end), u128::from(start) + u128::from(len));
            if from < past {
                let narrow = |wide: u128| u64::try_from(wide).expect("an id and a length fit u64");
                all.push((narrow(from), narrow(past - from)));
                end = past;
            }
        }
    }
    all
}
