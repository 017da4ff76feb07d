//! How a granted range is claimed, and what happens to a range that must not be used.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use super::witness::{is_certain, not_read, not_writable, of_the_witness};
use super::{Announced, Guarded, Heal, Ledger, Refusal};
use idmill::__private::{BoundedMap, count};
use idmill::SequenceName;
use idmill::store::{Change, GiveBack, Grant, Identity, Reserve, Store, exhausted};
use idmill::{Error, ErrorKind, Result};
use idmill_kit::Contention;

/// Maximum number of claims per reserve after the first attempt. If a range must not be used, another is
/// reserved.
const TRIES: usize = 8;

/// How long a rejected claim waits for a pending announcement.
const PENDING: Contention = Contention::new()
    .every(1)
    .pauses(Duration::from_millis(5), Duration::from_millis(100))
    .timeout(Duration::from_secs(2));

/// A granted range that is to be claimed.
pub(super) struct Attempt {
    /// The ledger before the reserve.
    pub(super) seen: Option<Ledger>,
    pub(super) grant: Grant,
}

/// A range that is not used.
struct Unused {
    error: Error,
    /// Whether another range must be reserved.
    again: bool,
    /// How many of its ids are a gap.
    gap: u64,
}

/// The sequences whose ranges were refused because of their identity. Nothing more is reserved from them
/// while the identity and the ledger stay the same.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BoundedMap<(Identity, LedgerState, Error)>>);

/// The part of a ledger that decides on the refusal of an identity.
type LedgerState = (Identity, Option<Announced>);

impl Refusals {
    /// Returns the error of the last refusal if it would be repeated.
    pub(super) async fn check(
        &self,
        name: &SequenceName,
        seen: Option<&Ledger>,
        store: &dyn Store,
    ) -> Result<()> {
        let Some((refused, state, error)) = self.0.lock().get(name).cloned() else { return Ok(()) };
        let is_same = seen.is_some_and(|seen| (seen.identity, seen.announced) == state);
        if is_same && store.inspect(name).await?.is_some_and(|stored| stored.identity == refused) {
            return Err(error);
        }
        drop(self.0.lock().take(name));
        Ok(())
    }

    fn remember(&self, name: &SequenceName, refused: Identity, state: LedgerState, error: Error) {
        self.0.lock().put(name, (refused, state, error));
    }
}

impl Guarded {
    /// Returns the ledger with the claim, or the reason why the range must not be used.
    fn judged(&self, attempt: &Attempt, now: Option<&Ledger>) -> Result<Ledger, Refusal> {
        let Grant { identity, range, .. } = attempt.grant;
        let claimed = Ledger::judge(attempt.seen.as_ref(), now, identity, range)?;
        let store = self.place.clone().or_else(|| claimed.store.clone());
        Ok(Ledger { store, ..claimed })
    }

    /// Returns the claim by the ledger that was read before the reserve; `None` if it does not allow it.
    pub(super) fn first_claim(&self, attempt: &Attempt) -> Option<Ledger> {
        self.judged(attempt, attempt.seen.as_ref()).ok()
    }

    /// Claims the grant. If its range must not be used, reserves another.
    pub(super) async fn use_or_again(&self, request: &Reserve, mut attempt: Attempt) -> Result<Grant> {
        let (mut last, mut gap) = (None, 0);
        for _ in 0..TRIES {
            match self.claim(&request.name, &attempt).await {
                Ok(()) => return Ok(attempt.grant.leaving_gap(gap)),
                Err(unused) => {
                    gap += unused.gap;
                    if !unused.again {
                        return Err(unused.error.leaving_gap(gap));
                    }
                    last = Some(unused.error);
                }
            }
            attempt = self.attempt(request).await.map_err(|error| error.leaving_gap(gap))?;
        }
        gap += self.returned(&request.name, &attempt.grant).await;
        let message = "each granted range was already claimed; use larger steps, or find the other writer of \
                       this sequence";
        let error = Error::new(ErrorKind::Unavailable, message);
        Err(last.into_iter().fold(error, Error::because).leaving_gap(gap))
    }

    async fn claim(&self, name: &SequenceName, attempt: &Attempt) -> Result<(), Unused> {
        let unclaimed = match self.try_claim(name, attempt).await {
            Ok(None) => return Ok(()),
            Ok(Some((refusal, now))) => return Err(self.refused(name, attempt, refusal, now).await),
            Err(error) => self.unclaimed(name, &attempt.grant, error).await,
        };
        Err(Unused { error: unclaimed, again: false, gap: 0 })
    }

    /// Claims a grant. Returns `None`, or the refusal and the ledger at that time.
    async fn try_claim(
        &self,
        name: &SequenceName,
        attempt: &Attempt,
    ) -> Result<Option<(Refusal, Option<Ledger>)>> {
        let (mut contest, mut pending) = (Contention::new().begin(), PENDING.begin());
        loop {
            let now = self.witness.read(name).await.map_err(not_read)?;
            let wanted = match self.judged(attempt, now.as_ref()) {
                Ok(wanted) => wanted,
                Err(refusal) => {
                    let announced = now.as_ref().and_then(|now| now.announced);
                    if announced.is_some_and(Announced::is_pending) && pending.lost(None).await.is_ok() {
                        continue;
                    }
                    return Ok(Some((refusal, now)));
                }
            };
            if self.witness.swap(name, now.as_ref(), &wanted).await? {
                return Ok(None);
            }
            contest.lost(None).await?;
        }
    }

    /// Returns the error of a failed claim. If the witness definitely has no claim, the range is returned to
    /// the store.
    pub(super) async fn unclaimed(&self, name: &SequenceName, grant: &Grant, error: Error) -> Error {
        if !is_certain(&error) {
            return lost(of_the_witness(error));
        }
        // Relaxed: as in `writable`.
        self.is_doubtful.store(true, Ordering::Relaxed);
        let gap = self.returned(name, grant).await;
        not_writable(error).leaving_gap(gap)
    }

    /// Returns an unused range to the store. Returns how many ids are a gap, since the store did not take
    /// them.
    async fn returned(&self, name: &SequenceName, grant: &Grant) -> u64 {
        let back = GiveBack::new(name.clone(), grant.identity, grant.range);
        let taken =
            self.store.capabilities().gives_back && matches!(self.store.give_back(&back).await, Ok(true));
        if taken { 0 } else { grant.range.len() }
    }

    async fn refused(
        &self,
        name: &SequenceName,
        attempt: &Attempt,
        refusal: Refusal,
        now: Option<Ledger>,
    ) -> Unused {
        let grant = &attempt.grant;
        let (known, message) = match refusal {
            Refusal::Claimed { top, .. } | Refusal::Recreated { top } => {
                let announced = now.and_then(|now| now.announced);
                return self.healed_by(name, grant, top, refusal, announced).await;
            }
            Refusal::Outdated => {
                let gap = self.returned(name, grant).await;
                return Unused { error: outdated(grant), again: true, gap };
            }
            Refusal::Replaced { known } => (known, replaced(grant, known, self.elsewhere(now.as_ref()))),
            Refusal::BehindReset { known } => (known, behind_reset(grant, known)),
        };
        let gap = self.returned(name, grant).await;
        match self.store.inspect(name).await {
            // Others removed or reset the sequence after the grant.
            Ok(stored) if stored.as_ref().is_none_or(|stored| stored.identity != grant.identity) => {
                Unused { error: Error::new(ErrorKind::Unavailable, message), again: true, gap }
            }
            Ok(_) => {
                let announced = now.and_then(|now| now.announced);
                let error = Error::new(ErrorKind::StoreViolation, with(message, announced));
                self.refusals.remember(name, grant.identity, (known, announced), error.clone());
                Unused { error, again: false, gap }
            }
            Err(error) => Unused { error, again: false, gap },
        }
    }

    /// Returns the place of the ledger's store, if it is another than this one.
    fn elsewhere(&self, now: Option<&Ledger>) -> Option<Arc<str>> {
        let known = now.and_then(|now| now.store.clone())?;
        self.place.as_ref().is_some_and(|here| *here != known).then_some(known)
    }

    /// Raises the store above all claims. Logs and counts a store that went back in time.
    async fn healed_by(
        &self,
        name: &SequenceName,
        grant: &Grant,
        top: u128,
        refusal: Refusal,
        announced: Option<Announced>,
    ) -> Unused {
        let certainly = matches!(refusal, Refusal::Claimed { went_back: true, .. });
        // An administrator raised the sequence to the floor, and the store does not have the raise yet.
        let is_meant = announced == Some(Announced::Raising);
        let went_back = match self.heal(name, grant, top).await {
            Ok(Heal::Raise(next)) => {
                if let Refusal::Recreated { .. } = refusal {
                    tracing::info!(sequence = %name, "ids start at {next}, above the ids of the removed sequence with this name");
                }
                certainly || !is_meant && matches!(refusal, Refusal::Claimed { .. })
            }
            Ok(Heal::Nothing) => certainly,
            Ok(Heal::Exhausted) => {
                return Unused { error: all_claimed(name, grant, refusal), again: false, gap: 0 };
            }
            // Others raised or reset the sequence; the next reserve shows its new state.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => false,
            Err(error) => return Unused { error, again: false, gap: grant.range.len() },
        };
        if went_back {
            self.report(name, grant, top);
        }
        // Ids that the store grants again were granted before, and a removed sequence's ids belong to it.
        let is_late = !went_back && matches!(refusal, Refusal::Claimed { .. });
        Unused { error: claimed_before(grant, top), again: true, gap: u64::from(is_late) * grant.range.len() }
    }

    /// Raises the store above all claims. The next id is never lowered, so a late or repeated call is
    /// harmless.
    async fn heal(&self, name: &SequenceName, grant: &Grant, top: u128) -> Result<Heal> {
        let Some(info) = self.store.inspect(name).await? else { return Err(ErrorKind::Conflict.into()) };
        let heal = Heal::of(&info, grant.identity, top);
        if let Heal::Raise(next) = heal {
            // A give-back changes the ledger before the store. If the top is now lower, the store was not
            // restored.
            let claimed = self.witness.read(name).await.map_err(not_read)?;
            if claimed.is_some_and(|ledger| ledger.top() < top) {
                return Err(ErrorKind::Conflict.into());
            }
            let mut change = Change::new().next(next).expect(info.identity);
            // Only an operator ends the refusal after a failover.
            change.keep_history = true;
            self.store.set(name, change).await?;
        }
        Ok(heal)
    }

    fn report(&self, name: &SequenceName, grant: &Grant, top: u128) {
        // Relaxed: as in `healed`.
        self.healed.fetch_add(1, Ordering::Relaxed);
        count("idmill_healed_total", &[]);
        let again = grant.range.start();
        tracing::error!(
            sequence = %name,
            "the store went back in time: it repeated ids from {again} on; none was used, and ids continue \
             from {top} or above"
        );
    }
}

fn replaced(grant: &Grant, known: Identity, elsewhere: Option<Arc<str>>) -> String {
    if let Some(store) = elsewhere {
        return format!(
            "the witness has the claims of {store}: use a witness for each store, or restore this one"
        );
    }
    format!(
        "the incarnation is {:016x}, the claims are for {:016x}; fix the URL, restore the store, or remove NAME \
         through the guard",
        grant.identity.incarnation, known.incarnation
    )
}

fn behind_reset(grant: &Grant, known: Identity) -> String {
    format!(
        "the store lost a reset or revoke: it has epoch {}, the claims {}; restore a later backup, or reset the \
         sequence again",
        grant.identity.epoch, known.epoch
    )
}

/// Adds the pending announcement, a possible cause, to an error message.
fn with(message: String, announced: Option<Announced>) -> String {
    match announced.filter(|announced| announced.is_pending()) {
        Some(announced) => format!("{message}; {}", announced.repeated()),
        None => message,
    }
}

fn all_claimed(name: &SequenceName, grant: &Grant, refusal: Refusal) -> Error {
    let max = grant.bounds.max();
    if let Refusal::Claimed { .. } = refusal {
        return exhausted(name, max);
    }
    let message = format!(
        "a removed sequence used all ids up to {max}; raise `max`, or if none is in use, run `idmill \
         remove NAME --yes --forget`"
    );
    Error::new(ErrorKind::Exhausted, message)
}

fn claimed_before(grant: &Grant, top: u128) -> Error {
    let message = format!(
        "the store granted ids from {} on, but ids below {top} were already claimed; the grant was not \
         used",
        grant.range.start()
    );
    Error::new(ErrorKind::StoreViolation, message)
}

fn outdated(grant: &Grant) -> Error {
    let message = format!(
        "the store granted ids from {} on, below earlier claims; the grant was not used",
        grant.range.start()
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// The store granted a range that is not used. The caller counts it as a gap.
fn lost(error: Error) -> Error {
    Error::new(
        ErrorKind::UnknownOutcome,
        "a range was reserved, but its claim is not confirmed; the range is a gap",
    )
    .because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::IdRange;
    use idmill::store::Bounds;

    const KNOWN: Identity = Identity { incarnation: 8, epoch: 5 };

    fn grant() -> Grant {
        let identity = Identity { incarnation: 7, epoch: 3 };
        Grant::new(IdRange::new(21, 10).unwrap(), identity, Bounds::new(1, 30).unwrap())
    }

    #[test]
    fn refusal_of_an_identity_names_both_sides() {
        assert_eq!(
            replaced(&grant(), KNOWN, None),
            "the incarnation is 0000000000000007, the claims are for 0000000000000008; fix the URL, restore \
             the store, or remove NAME through the guard"
        );
        assert_eq!(
            replaced(&grant(), KNOWN, Some("sqlite:/a".into())),
            "the witness has the claims of sqlite:/a: use a witness for each store, or restore this one"
        );
        assert_eq!(
            behind_reset(&grant(), KNOWN),
            "the store lost a reset or revoke: it has epoch 3, the claims 5; restore a later backup, or \
             reset the sequence again"
        );
    }

    #[test]
    fn error_of_an_unused_range_names_its_ids() {
        let (name, top) = ("orders".parse().unwrap(), 31);
        for (error, kind, text) in [
            (
                claimed_before(&grant(), top),
                ErrorKind::StoreViolation,
                "the store granted ids from 21 on, but ids below 31 were already claimed; the \
                 grant was not used",
            ),
            (
                outdated(&grant()),
                ErrorKind::Unavailable,
                "the store granted ids from 21 on, below earlier claims; the grant was not used",
            ),
            (
                all_claimed(&name, &grant(), Refusal::Recreated { top }),
                ErrorKind::Exhausted,
                "a removed sequence used all ids up to 30; raise `max`, or if none is in use, run `idmill \
                 remove NAME --yes --forget`",
            ),
            (
                lost(Error::new(ErrorKind::Unavailable, "no answer")),
                ErrorKind::UnknownOutcome,
                "a range was reserved, but its claim is not confirmed; the range is a gap: no answer",
            ),
        ] {
            assert_eq!((error.kind(), idmill_kit::chain(&error).as_str()), (kind, text));
        }
        let all = all_claimed(&name, &grant(), Refusal::Claimed { top, went_back: true });
        assert_eq!(all.to_string(), exhausted(&name, 30).to_string());
    }
}
