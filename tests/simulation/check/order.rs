//! Ids grow as the sequence's order promises: for `Global` in all processes, for `Process` in one, for
//! `Thread` in one view of one process. That is: a call that began after another had returned gets larger
//! ids.

use std::collections::BTreeMap;

use idmill::Order;

use super::{Case, Verdict};
use crate::history::{Draw, View};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    // After an administrator has set the sequence back, smaller ids are expected.
    let reset = case.history.reset.get(&case.sequence).copied().unwrap_or(u64::MAX);
    let mut groups: BTreeMap<(usize, usize, usize), Vec<&Draw>> = BTreeMap::new();
    for draw in &case.history.draws {
        let counts = draw.sequence == case.sequence && draw.ended < reset && !draw.ids().is_empty();
        if let (true, Some(group)) = (counts, group(case.plan.order, draw)) {
            groups.entry(group).or_default().push(draw);
        }
    }
    groups.into_values().try_for_each(grows)
}

/// Returns the group of a draw. Order is promised within a group.
fn group(order: Order, draw: &Draw) -> Option<(usize, usize, usize)> {
    match (order, draw.view) {
        (Order::Global, _) => Some((0, 0, 0)),
        (Order::Process, _) => Some((draw.life, 0, 0)),
        // All tasks of the simulation share one thread, and so one thread block.
        (_, View::Allocator) => Some((draw.life, 1, 0)),
        (_, View::Handle) => Some((draw.life, 2, draw.caller)),
        (_, View::Block) => Some((draw.life, 3, draw.caller)),
        (_, View::Take) => None,
    }
}

fn grows(mut draws: Vec<&Draw>) -> Verdict {
    for draw in &draws {
        let spans = draw.ids();
        if spans.windows(2).any(|pair| pair[0].0 + (pair[0].1 - 1) >= pair[1].0) {
            return Err(format!("one call's ids do not grow: {draw:?}"));
        }
    }
    let mut ended = draws.clone();
    ended.sort_by_key(|draw| draw.ended);
    draws.sort_by_key(|draw| draw.began);
    let (mut ended, mut largest) = (ended.into_iter().peekable(), None);
    for draw in draws {
        while let Some(earlier) = ended.next_if(|earlier| earlier.ended < draw.began) {
            let last = earlier.ids().iter().map(|(start, len)| start + (len - 1)).max();
            if last > largest.map(|(id, _)| id) {
                largest = last.map(|id| (id, earlier));
            }
        }
        let first = draw.ids()[0].0;
        if let Some((id, earlier)) = largest.filter(|(id, _)| *id >= first) {
            return Err(format!("{first} came after {id}: {earlier:?}, then {draw:?}"));
        }
    }
    Ok(())
}
