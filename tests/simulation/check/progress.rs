//! Once all faults are over for good, every waiting caller is served after at most the reserve in flight, the
//! delay before the next attempt, and its own reserve. From then on, a draw waits only for a reserve.

use std::time::Duration;

use idmill::ErrorKind;

use super::deadlines::RESOLUTION;
use super::{Case, Verdict};
use crate::history::{Draw, Outcome};

/// The longest delay between two attempts: 5 s, and a random part of up to the same length.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// The most reserves that a call may wait for: one in flight, which may have too few ids, and one of its own.
const RESERVES: u32 = 2;

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    let Some(heals) = case.world.plan.heals else { return Ok(()) };
    let draws = case.history.draws.iter();
    let mut draws = draws.filter(|draw| draw.sequence == case.sequence && draw.waits && draw.end() > heals);
    draws.try_for_each(|draw| each_draw(case, draw, heals))
}

fn each_draw(case: &Case<'_>, draw: &Draw, heals: Duration) -> Verdict {
    let reserves = case.world.plan.weather.healed * RESERVES + RESOLUTION;
    let delayed = last_of_before(case, draw.life, heals) + LONGEST_DELAY;
    if draw.end() > delayed.max(draw.at) + reserves {
        return Err(format!("healed at {heals:?}, and not served by {:?}: {draw:?}", delayed + reserves));
    }
    if draw.end() > delayed + reserves && is_failure(&draw.outcome) {
        return Err(format!("healed at {heals:?}, and failed after {delayed:?}: {draw:?}"));
    }
    Ok(())
}

/// When the last call that this process sent before the end of the faults was answered or given up. Calls of
/// all sequences count: their callers share the places for waiting callers.
fn last_of_before(case: &Case<'_>, life: usize, heals: Duration) -> Duration {
    let sent = case.history.sent.iter().filter(|sent| sent.life == life && sent.at <= heals);
    let back = case.history.given_back.iter().filter(|back| back.life == life && back.at <= heals);
    sent.map(|sent| sent.over).chain(back.map(|back| back.over)).fold(heals, Duration::max)
}

fn is_failure(outcome: &Outcome) -> bool {
    let Outcome::Refused(kind) = outcome else { return false };
    !matches!(kind, ErrorKind::Exhausted | ErrorKind::Closed)
}
