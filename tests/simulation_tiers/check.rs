//! The promises that must hold after a run.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use idmill::ErrorKind;
use idmill_shared_cache::datacenter::Span;

use crate::world::{Call, History, World};

type Verdict = Result<(), String>;

pub(crate) fn all(world: &World) -> Verdict {
    if world.hung {
        return Err("a call never returned".to_owned());
    }
    let history = world.history.lock();
    unique(&history)?;
    windows_account_for_all(world)?;
    processes_account_for_all(world, &history)?;
    exhausted_is_true(&history)?;
    everybody_is_served_at_last(&history)?;
    world.plan.sized_for.map_or(Ok(()), |isolation| nobody_noticed(world, &history, isolation))
}

fn unique(history: &History) -> Verdict {
    let mut seen = HashSet::new();
    let twice = history.calls.iter().filter_map(|call| call.outcome.ok()).find(|id| !seen.insert(*id));
    twice.map_or(Ok(()), |id| Err(format!("{id} was handed out twice")))
}

/// Every claimed id was taken from a window once, is in a window, or is claimed for a window that has to be
/// refilled.
fn windows_account_for_all(world: &World) -> Verdict {
    let rows = world.cluster.0.lock();
    let mut spans = rows.taken.clone();
    for (datacenter, window) in rows.windows.iter().enumerate() {
        spans.extend(rows.owed(datacenter));
        spans.extend(window.iter().flat_map(|window| [Some(window.current), window.preloaded]).flatten());
    }
    spans.retain(|span| !span.is_empty());
    spans.sort_by_key(|span| span.start);
    let mut reached = u128::from(rows.bounds.start());
    for Span { start, end } in spans {
        match start.cmp(&reached) {
            std::cmp::Ordering::Less => return Err(format!("{start} is in two places")),
            std::cmp::Ordering::Greater => return Err(format!("{reached} to {start} is lost")),
            std::cmp::Ordering::Equal => reached = end,
        }
    }
    if reached == rows.next { Ok(()) } else { Err(format!("{reached} to {} is lost", rows.next)) }
}

/// For processes that lived to the end: every granted id was handed out, is in memory, or is counted as a
/// gap.
fn processes_account_for_all(world: &World, history: &History) -> Verdict {
    let mut granted: BTreeMap<usize, u64> = BTreeMap::new();
    let taken: BTreeMap<u128, u128> =
        world.cluster.0.lock().taken.iter().map(|span| (span.start, span.end)).collect();
    for (life, grant) in &history.grants {
        *granted.entry(*life).or_default() += grant.range.len();
        if taken.get(&grant.range.start().into()) != Some(&grant.range.end()) {
            return Err(format!("{:?} was granted and not taken from a window", grant.range));
        }
    }
    for (life, snapshot) in &history.left {
        let had =
            history.calls.iter().filter(|call| call.life == *life && call.outcome.is_ok()).count() as u64;
        let gaps = snapshot.gaps;
        let known = had + snapshot.remaining + gaps.revoked + gaps.abandoned + gaps.dropped;
        // The engine counts a grant that arrives too late as an unknown gap, not as granted.
        let granted = granted.get(life).copied().unwrap_or(0);
        if known != snapshot.granted || granted < known || granted > known + gaps.unknown {
            return Err(format!("life {life}: {granted} granted, {had} handed out, {snapshot:?}"));
        }
    }
    Ok(())
}

fn exhausted_is_true(history: &History) -> Verdict {
    let said = |kind| move |call: &&Call| call.outcome == Err(kind);
    let early = history.calls.iter().filter(said(ErrorKind::Exhausted)).find(|call| !call.at_end);
    early.map_or(Ok(()), |call| Err(format!("exhausted while there were ids: {call:?}")))
}

/// Progress: after the faults have ended, each living process gets an id or `Exhausted`.
fn everybody_is_served_at_last(history: &History) -> Verdict {
    let mut last = BTreeMap::new();
    for call in history.calls.iter().filter(|call| call.last) {
        last.insert(call.life, call);
    }
    let unserved = last.values().find(|call| !matches!(call.outcome, Ok(_) | Err(ErrorKind::Exhausted)));
    if let Some(call) = unserved {
        return Err(format!("not served after the faults ended: {call:?}"));
    }
    if last.is_empty() { Err("no process lived to the end".to_owned()) } else { Ok(()) }
}

/// While the isolation is not longer than the windows are sized for, no caller fails or waits over 1 s. After
/// that, every failure is a timeout.
fn nobody_noticed(world: &World, history: &History, isolation: Duration) -> Verdict {
    let cut_at = history.cut_at.ok_or("never cut off: nothing was tested")?;
    let datacenter = world.plan.isolations[0].datacenter;
    let there = || history.calls.iter().filter(|call| call.datacenter == datacenter);
    let in_time = |call: &&Call| call.began + call.took < cut_at + isolation;
    let hurt =
        there().filter(in_time).find(|call| call.outcome.is_err() || call.took > Duration::from_secs(1));
    if let Some(call) = hurt {
        return Err(format!("cut off at {cut_at:?} for {isolation:?}, and noticed: {call:?}"));
    }
    let failed: Vec<_> = there().filter(|call| call.outcome.is_err()).collect();
    if failed.is_empty() {
        return Err("isolated for twice the limit without running out of ids: nothing was tested".to_owned());
    }
    let wrong = failed.iter().find(|call| call.outcome != Err(ErrorKind::Deadline));
    wrong.map_or(Ok(()), |call| Err(format!("expected a timeout during the isolation: {call:?}")))
}
