//! The promises that must hold after a run.

use std::collections::HashSet;
use std::time::Duration;

use idmill::IdRange;

use crate::server::{Lie, Miss, Server};
use crate::world::{Counted, History, World, name};

type Verdict = Result<(), String>;

/// Draws within a shorter time are a burst, not a rate.
const BURST: Duration = Duration::from_millis(100);
/// A window may have this number of ids even if fewer are drawn.
const SMALL: u64 = 64;
/// A window has at most this multiple of the ids drawn: a refill enlarges the window up to fourfold, and a
/// process without a measured rate reads the size from the window's mark, which may be too large by half.
const TIMES: u64 = 6;
/// Once the faults end, no caller waits longer, except while it waits for a range that a crashed process was
/// about to put into the window.
const PROMPT: Duration = Duration::from_secs(1);

pub(crate) fn all(world: &World) -> Result<Counted, String> {
    if world.hung {
        return Err("a call never returned".to_owned());
    }
    let history = world.history.lock();
    if let Some(wrong) = history.wrong.first() {
        return Err(format!("an error that should not be: {wrong}"));
    }
    unique(&history)?;
    growing(&history)?;
    everything_is_accounted_for(world, &history)?;
    bounded(world)?;
    everybody_is_served_at_last(world, &history)?;
    Ok(world.counted(&history))
}

fn unique(history: &History) -> Verdict {
    let mut seen = HashSet::new();
    let drawn = history.draws.iter().map(|draw| draw.range);
    let mut ids = drawn.chain(history.strangers.iter().copied()).flatten();
    ids.find(|id| !seen.insert(*id)).map_or(Ok(()), |id| Err(format!("{id} was handed out twice")))
}

/// An id is larger than all ids that any process received before the call.
fn growing(history: &History) -> Verdict {
    let (mut by_begin, mut by_end) = (history.draws.clone(), history.draws.clone());
    by_begin.sort_unstable_by_key(|draw| draw.began);
    by_end.sort_unstable_by_key(|draw| draw.ended);
    let (mut returned, mut largest) = (by_end.into_iter().peekable(), 0);
    for draw in by_begin {
        while let Some(earlier) = returned.next_if(|earlier| earlier.ended < draw.began) {
            largest = largest.max(earlier.range.last().unwrap_or(0));
        }
        if draw.range.start() <= largest {
            return Err(format!("{:?} was requested after {largest} was returned", draw.range));
        }
    }
    Ok(())
}

/// Granted ids were handed out, skipped at a miss, are in the window, or are counted as a gap.
fn everything_is_accounted_for(world: &World, history: &History) -> Verdict {
    let counted = world.counted(history);
    let granted: u64 = world.store.granted(name().as_str()).iter().map(|grant| grant.range.len()).sum();
    let strangers: u64 = history.strangers.iter().map(IdRange::len).sum();
    let known =
        counted.ids + strangers + counted.skipped + counted.abandoned + world.network.server.lock().left();
    let calm = world.plan.store.lost == 0.0 && counted.uncertain == 0 && world.plan.store.longest < BURST;
    let crashed = world.plan.processes.iter().any(|process| !process.crashes.is_empty());
    if known > granted {
        return Err(format!("{granted} granted, and {known} accounted for: {counted:?}"));
    }
    if calm && !crashed && known < granted {
        return Err(format!("{granted} granted, and only {known} accounted for: {counted:?}"));
    }
    Ok(())
}

/// A miss skips about the ids drawn within `max_skip`, and never more than a block or the largest request.
fn bounded(world: &World) -> Verdict {
    let (plan, server) = (&world.plan, world.network.server.lock());
    let largest = plan.processes.iter().map(|process| process.count).max().unwrap_or(0);
    for miss in &server.misses {
        let mut most = plan.block.max(largest);
        if let Some(lasts) = plan.max_skip {
            most = most.min(SMALL.max(TIMES * most_drawn(&server, lasts.max(BURST), miss)));
        }
        if miss.skipped > most {
            return Err(format!(
                "{} ids were skipped at once at {:?}, more than {most}",
                miss.skipped, miss.at
            ));
        }
    }
    Ok(())
}

/// The maximum number of ids that were drawn within the given time, at any time before a miss.
fn most_drawn(server: &Server, within: Duration, miss: &Miss) -> u64 {
    let draws = &server.draws;
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for (at, count) in draws.iter().take_while(|(at, _)| *at <= miss.at) {
        sum += count;
        while draws[first].0 + within < *at {
            sum -= draws[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

fn everybody_is_served_at_last(world: &World, history: &History) -> Verdict {
    if history.last.len() != world.plan.processes.len() {
        return Err("not every process lived to the end".to_owned());
    }
    // Other processes wait for a crashed process until a slow refill ends or the stub expires.
    let gone = (world.plan.store.longest * 2).max(world.plan.stub);
    let late = history.last.iter().find(|took| took.is_none_or(|took| took > PROMPT + gone));
    match late {
        Some(took) if world.plan.lie != Lie::IgnoresCas => {
            Err(format!("not served after the faults ended: {took:?}"))
        }
        _ => Ok(()),
    }
}
