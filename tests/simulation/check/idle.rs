//! No draw of one id begins to wait while ids are in the process that are later handed out: such ids were in
//! memory, and promised to no other caller.
//!
//! Only under `Order::Process`: `Global` keeps no ids in memory, and under `Thread` blocks hold ids.

use std::collections::BTreeMap;
use std::time::Duration;

use idmill::Order;

use super::{Case, Verdict};
use crate::history::{Draw, Sent};

/// Ids of one grant: granted at the time `from`, and the last of them handed out at the time `to`.
#[derive(Clone, Copy)]
struct Held {
    from: Duration,
    to: Duration,
    last: u64,
}

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    if case.plan.order != Order::Process
        || case.has_nonsense()
        || case.history.reset.contains_key(&case.sequence)
    {
        return Ok(());
    }
    let mut lives: BTreeMap<usize, (Vec<&Sent>, Vec<&Draw>)> = BTreeMap::new();
    for sent in case.history.sent.iter().filter(|sent| sent.sequence == case.sequence) {
        lives.entry(sent.life).or_default().0.push(sent);
    }
    for draw in case.history.draws.iter().filter(|draw| draw.sequence == case.sequence) {
        lives.entry(draw.life).or_default().1.push(draw);
    }
    lives.into_values().try_for_each(|(sent, draws)| each_life(&sent, &draws))
}

fn each_life(sent: &[&Sent], draws: &[&Draw]) -> Verdict {
    let held = held(sent, draws);
    for draw in draws.iter().filter(|draw| draw.waits && draw.want == 1 && !draw.took.is_zero()) {
        if let Some(held) = held.iter().find(|held| held.from < draw.at && draw.at < held.to) {
            let Held { from, to, last } = held;
            return Err(format!(
                "waited while {last}, granted at {from:?}, was in memory until {to:?}: {draw:?}"
            ));
        }
    }
    Ok(())
}

/// Returns the ids of each grant that were handed out.
fn held(sent: &[&Sent], draws: &[&Draw]) -> Vec<Held> {
    // Ids that were given back can be granted again: the last grant counts.
    let granted = sent.iter().filter_map(|sent| Some((sent.grant?.range.start(), sent.over)));
    let unused = |(start, from)| (start, Held { from, to: Duration::ZERO, last: 0 });
    let mut grants: BTreeMap<u64, Held> = granted.map(unused).collect();
    for draw in draws {
        for (start, len) in draw.ids() {
            // A range may be of two grants.
            for id in [*start, start + (len - 1)] {
                if let Some((_, held)) = grants.range_mut(..=id).next_back() {
                    (held.to, held.last) = (held.to, held.last).max((draw.end(), id));
                }
            }
        }
    }
    grants.into_values().collect()
}
