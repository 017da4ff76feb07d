//! The claims of returned ids, if the store has a guard. Pure: no store, no clock.

use idmill::IdRange;
use idmill::store::Identity;
use idmill_guard::{Announced, Ledger};

/// Returns the ledger without the claim of `rest`, which its owner returns. The caller writes this ledger
/// before the ids go back to the store or to a shelf: after a crash between the two, the ids are a gap.
/// Returns `None` if the ids are not certainly claimed, or while an announcement is pending: a raise may be
/// about to skip these ids.
pub(super) fn unclaimed(seen: &Ledger, identity: Identity, rest: IdRange) -> Option<Ledger> {
    let is_pending = seen.announced.is_some_and(Announced::is_pending);
    if is_pending || identity != seen.identity || rest.is_empty() {
        return None;
    }
    let (start, mut ledger) = (u128::from(rest.start()), seen.clone());
    ledger.version += 1;
    if seen.solid <= start && rest.end() <= seen.floor {
        ledger.floor = start;
        if let Some(left) = between(rest.end(), seen.floor) {
            ledger.claims.insert(0, left);
        }
        return Some(ledger);
    }
    let is_around = |claim: &IdRange| u128::from(claim.start()) <= start && rest.end() <= claim.end();
    let place = ledger.claims.iter().position(is_around)?;
    let claim = ledger.claims.remove(place);
    let left = [between(claim.start().into(), start), between(rest.end(), claim.end())];
    left.into_iter().flatten().rev().for_each(|part| ledger.claims.insert(place, part));
    Some(ledger)
}

/// Returns the ids from `start` to before `end`, if there are any.
fn between(start: u128, end: u128) -> Option<IdRange> {
    let len = u64::try_from(end.checked_sub(start)?).ok().filter(|len| *len > 0)?;
    IdRange::new(u64::try_from(start).ok()?, len)
}
