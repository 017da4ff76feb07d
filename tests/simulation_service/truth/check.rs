//! Compares each report with the draws before and after it.

use std::time::Duration;

use idmill_testing::faulty::Fault;

use super::plan::{Event, Plan};
use super::world::{Draw, Probe, Seen};

/// How long draws may fail before a report must say so, or a report may be late after the store's recovery.
const NOTICED: Duration = Duration::from_secs(3);
/// Draws may fail this long after a report that is not ready: load balancers need some time.
const AHEAD: Duration = Duration::from_secs(6);
/// The longest delay between two attempts, and one reserve.
const RECOVERED: Duration = Duration::from_secs(11);

/// Fewer would compare little. A world has a probe every 200 ms, and lasts 20 s after its event.
const LEAST_PROBES: usize = 100;

pub(super) fn all(plan: &Plan, seen: &Seen) -> Result<(), String> {
    let within = |from: Duration, to: Duration| {
        let draws = seen.draws.iter().filter(move |draw| from < draw.ended && draw.ended <= to);
        draws.copied().collect::<Vec<_>>()
    };
    let served = |sequence| seen.draws.iter().any(|draw| draw.sequence == sequence && draw.served);
    if seen.probes.len() < LEAST_PROBES || !(0..plan.sequences.len()).all(served) {
        return Err(format!("too little happened: {} probes", seen.probes.len()));
    }
    for probe in &seen.probes {
        let at = probe.at;
        let lately = within(at.saturating_sub(NOTICED), at);
        let fails = within(at.saturating_sub(AHEAD), at + AHEAD).iter().any(|draw| !draw.served);
        let fault = match (probe.ready, plan.event) {
            (true, _) => missed(plan, probe, &lately),
            (false, Event::Store(_)) => false_alarm(plan, probe, fails),
            (false, _) => Some("not ready, although only one sequence fails"),
        };
        if let Some(fault) = fault {
            return Err(format!("{fault}, at {at:?}: {}; draws until then: {lately:?}", probe.text));
        }
    }
    Ok(())
}

/// Whether draws fail because of the store, and the report is ready.
fn missed(plan: &Plan, probe: &Probe, lately: &[Draw]) -> Option<&'static str> {
    let Event::Store(fault) = plan.event else { return None };
    if probe.at < plan.begins + NOTICED || probe.at > plan.ends {
        return None;
    }
    let is_starved = |sequence: usize| {
        let mut draws = lately.iter().filter(|draw| draw.sequence == sequence).peekable();
        draws.peek().is_some() && draws.all(|draw| !draw.served)
    };
    let mut sequences = 0..plan.sequences.len();
    // If the store answers, and refuses each sequence, only the failures of all of them show it.
    let starved =
        if matches!(fault, Fault::Refuse(_)) { sequences.all(is_starved) } else { sequences.any(is_starved) };
    starved.then_some("ready, although draws fail")
}

/// Whether no draw fails or is about to, and the report is not ready.
fn false_alarm(plan: &Plan, probe: &Probe, fails: bool) -> Option<&'static str> {
    if probe.at < plan.begins {
        Some("not ready before the fault")
    } else if probe.at > plan.ends + RECOVERED {
        Some("not ready after the store's recovery")
    } else if !fails && probe.at + AHEAD < plan.ends {
        Some("not ready, although no draw fails")
    } else {
        None
    }
}
