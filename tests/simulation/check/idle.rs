//! No draw of one id begins to wait while ids are in the process that are later handed out: such ids were in
//! memory, and promised to no other caller.
//!
//! Only under `Order::Process`: `Global` keeps no ids in memory, and under `Thread` blocks hold ids.

use std::collections::BTreeMap;
use std::time::Duration;

use idmill::Order;

use super::{Case, Verdict};
use crate::history::{Draw, Sent};

/// A range that was granted at the time `from`. The last of its ids was handed out at the time `to`.
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

/// Each drawn range, with the time at which it was granted.
fn held(sent: &[&Sent], draws: &[&Draw]) -> Vec<Held> {
    // Ids that were given back can be granted again: the last grant counts.
    let granted = sent.iter().filter_map(|sent| Some((sent.grant?.range.start(), sent.over)));
    let granted: BTreeMap<u64, Duration> = granted.collect();
    let mut held = Vec::new();
    for draw in draws {
        for (start, len) in draw.ids() {
            let from = granted.range(..=start).next_back().map_or(Duration::MAX, |(_, at)| *at);
            held.push(Held { from, to: draw.end(), last: start + (len - 1) });
        }
    }
    held
}
