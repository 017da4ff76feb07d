//! Resets and removals through the guard: announced at the witness, applied to the store, confirmed at the
//! witness.

use super::witness::{is_certain, not_read, of_the_witness};
use super::{Announced, Guarded, Ledger, Witness};
use idmill::SequenceName;
use idmill::store::{Change, Identity, SequenceInfo, Store as _};
use idmill::{Error, ErrorKind, Result};
use idmill_kit::Contention;

/// Allows the next sequence of a removed name to start anywhere, even if it repeats the ids of the removed
/// one. Returns `false` if the witness has no removed sequence of this name.
///
/// # Errors
/// Those of the witness.
pub async fn forget(witness: &dyn Witness, name: &SequenceName) -> Result<bool> {
    let amended = amend(witness, name, |seen| seen?.forgotten()).await;
    Ok(amended.map_err(|error| error.of(name))?.is_some())
}

impl Guarded {
    /// Implements [`Store::set`](idmill::store::Store::set). Only a change with
    /// [`backwards`](Change::backwards) lowers the claims.
    pub(super) async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let seen = match self.witness.read(name).await {
            Ok(seen) => seen,
            // A revocation or another max is possible without the witness.
            Err(_) if !change.backwards && change.next.is_none() => {
                return self.store.set(name, change).await;
            }
            Err(error) => return Err(not_read(error)),
        };
        let Some(stored) = self.store.inspect(name).await? else { return self.store.set(name, change).await };
        let mut planned = stored.clone();
        // The store reports why a change cannot be applied.
        if planned.apply(&change).is_ok() {
            if seen.as_ref().is_some_and(|seen| lowers(seen, &stored, &planned, &change)) {
                // The epoch must change, because processes still have ranges of the old one in memory.
                let change = change.revoke(true).expect(stored.identity);
                return self.reset(name, stored.identity, planned.reached(), change).await;
            }
            if let Some(next) = change.next {
                return self.raise(name, stored.identity, next, change).await;
            }
        }
        let after = self.store.set(name, change).await?;
        if seen.is_some_and(|seen| seen.identity.incarnation == after.identity.incarnation) {
            // The sequence exists, so a pending announcement is superseded. If this write fails, the
            // announcement stays pending.
            let _ = self.amend(name, Ledger::taken_back).await;
        }
        Ok(after)
    }

    /// Raises the sequence to `next`: the ids below are in use, although the store did not grant them.
    async fn raise(
        &self,
        name: &SequenceName,
        stored: Identity,
        next: u64,
        change: Change,
    ) -> Result<SequenceInfo> {
        amend(&*self.witness, name, |seen| Ledger::raising(seen, stored, next.into())).await?;
        let after = self.store.set(name, change.expect(stored)).await?;
        // If this write fails, the announcement ends with the next claim.
        let _ = self.amend(name, Ledger::raised).await;
        Ok(after)
    }

    async fn reset(
        &self,
        name: &SequenceName,
        stored: Identity,
        start: u128,
        change: Change,
    ) -> Result<SequenceInfo> {
        let Some(announced) = self.amend(name, |ledger| ledger.resetting(stored, start)).await? else {
            return Err(overtaken("nothing was changed"));
        };
        let known = announced.identity;
        let after = match self.store.set(name, change).await {
            Ok(after) => after,
            Err(error) => return Err(self.not_done(name, error).await),
        };
        let confirmed = self.amend(name, |ledger| ledger.reset(known, after.identity, after.reached())).await;
        match confirmed.map_err(unconfirmed)? {
            Some(_) => Ok(after),
            None => Err(overtaken("only the store was changed")),
        }
    }

    /// Implements [`Store::remove`](idmill::store::Store::remove). A new incarnation must start above all
    /// claims. The announcement would change the ledger, so the identity is checked before it, and again by
    /// the store.
    pub(super) async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let stored = self.store.inspect(name).await?;
        stored.as_ref().map_or(Ok(()), |stored| stored.check_identity(expected))?;
        let seen = self.witness.read(name).await.map_err(not_read)?;
        // If there is no ledger, open one: a range may have been granted but not yet claimed.
        let opened = stored.as_ref().map(Ledger::opened);
        if seen.is_none() && opened.is_none() {
            return self.store.remove(name, expected).await;
        }
        let (is_new, reached) = (seen.is_none(), stored.map(|stored| (stored.identity, stored.reached())));
        let removing = |seen: Option<&Ledger>| seen.or(opened.as_ref())?.removing(reached);
        let announced = amend(&*self.witness, name, removing).await?;
        let Some(Identity { incarnation: known, .. }) = announced.or(seen).map(|ledger| ledger.identity)
        else {
            return Err(overtaken("nothing was changed"));
        };
        match self.store.remove(name, expected).await {
            Ok(removed) => self.confirm_removed(name, known).await.map(|()| removed).map_err(unconfirmed),
            Err(error) => {
                if is_new && error.kind() == ErrorKind::Conflict {
                    self.admit_successor(name, known).await;
                }
                Err(self.not_done(name, error).await)
            }
        }
    }

    async fn confirm_removed(&self, name: &SequenceName, known: u64) -> Result<()> {
        match self.amend(name, |ledger| ledger.removed(known)).await? {
            Some(_) => Ok(()),
            None => self.confirm_another(name).await,
        }
    }

    /// Lets a sequence claim that has replaced the one to remove. The ledger was opened for this removal, and
    /// would reject the claims of the new sequence.
    async fn admit_successor(&self, name: &SequenceName, known: u64) {
        let Ok(stored) = self.store.inspect(name).await else { return };
        if stored.is_none_or(|stored| stored.identity.incarnation != known) {
            // Ignore a failure: the ledger then stays, and rejects the claims until a person decides.
            let _ = self.amend(name, |ledger| ledger.removed(known)).await;
        }
    }

    /// Confirms the removal of a sequence that was created and claimed between another removal and this one.
    pub(super) async fn confirm_another(&self, name: &SequenceName) -> Result<()> {
        let Some(seen) = self.witness.read(name).await.map_err(not_read)? else { return Ok(()) };
        if self.store.inspect(name).await?.is_none() {
            self.amend(name, |ledger| ledger.removed(seen.identity.incarnation)).await?;
        }
        Ok(())
    }

    /// Withdraws the announcement, unless the store may have applied the change.
    async fn not_done(&self, name: &SequenceName, error: Error) -> Error {
        if is_certain(&error) {
            // Ignore a failure: an announcement that stays pending permits nothing.
            let _ = self.amend(name, Ledger::taken_back).await;
        }
        error
    }

    async fn amend(
        &self,
        name: &SequenceName,
        change: impl Fn(&Ledger) -> Option<Ledger> + Send + Sync,
    ) -> Result<Option<Ledger>> {
        amend(&*self.witness, name, |seen| change(seen?)).await
    }
}

/// Writes and returns the ledger that `change` returns, or `None` for no change.
async fn amend(
    witness: &dyn Witness,
    name: &SequenceName,
    change: impl Fn(Option<&Ledger>) -> Option<Ledger> + Send,
) -> Result<Option<Ledger>> {
    let mut contest = Contention::new().begin();
    loop {
        let seen = witness.read(name).await.map_err(not_read)?;
        let Some(wanted) = change(seen.as_ref()) else { return Ok(None) };
        if witness.swap(name, seen.as_ref(), &wanted).await.map_err(of_the_witness)? {
            return Ok(Some(wanted));
        }
        contest.lost(None).await?;
    }
}

/// Returns whether the change from `stored` to `planned` lowers the claims, or the store still has an epoch
/// from before a reset.
fn lowers(seen: &Ledger, stored: &SequenceInfo, planned: &SequenceInfo, change: &Change) -> bool {
    let start = planned.reached();
    let is_meant = change.next.is_some() || start < stored.reached();
    let is_lower = start < seen.top() || stored.identity.epoch < seen.identity.epoch;
    change.backwards && stored.identity.incarnation == seen.identity.incarnation && is_meant && is_lower
}

fn unconfirmed(error: Error) -> Error {
    let message =
        "the store has the change, but the witness may not; repeat the change when the witness is writable";
    // Not transient: a retry of the whole change would conflict with this one.
    Error::new(ErrorKind::UnknownOutcome, message).because(error)
}

fn overtaken(outcome: &str) -> Error {
    let message = format!(
        "another process reset or recreated the sequence, or used a later epoch; {outcome}; repeat the reset"
    );
    Error::new(ErrorKind::Conflict, message)
}

impl Announced {
    /// Returns advice to repeat the pending change.
    pub(super) const fn repeated(self) -> &'static str {
        match self {
            Self::Resetting { .. } => {
                "a reset was announced, not confirmed; if ids from ID on are unused, repeat `idmill set NAME --next \
                 ID --backwards --yes`"
            }
            Self::Raising => "a raise was announced, not confirmed; repeat `idmill set NAME --next ID`",
            _ => "a removal was announced but not confirmed; repeat `idmill remove NAME --yes`",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::Bounds;

    const ORDERS: Identity = Identity { incarnation: 7, epoch: 1 };
    const OTHER: Identity = Identity { incarnation: 8, epoch: 1 };

    fn stored(identity: Identity, next: u64) -> SequenceInfo {
        let bounds = Bounds::new(1, 1_000).unwrap();
        SequenceInfo::stored("orders".parse().unwrap(), Some(next), bounds, identity)
    }

    /// Returns whether the change lowers claims of all ids below 50, or undoes a reset.
    fn lowers(epoch: u64, stored: &SequenceInfo, change: Change) -> bool {
        let seen = Ledger::at(Identity { epoch, ..ORDERS }, 50);
        let mut planned = stored.clone();
        planned.apply(&change).unwrap();
        super::lowers(&seen, stored, &planned, &change)
    }

    #[test]
    fn only_a_change_backwards_lowers_the_claims() {
        let (here, back) = (stored(ORDERS, 50), Change::new().backwards(true));
        for (next, lower) in [(1, true), (49, true), (50, false), (51, false)] {
            assert_eq!(lowers(1, &here, back.next(next)), lower, "{next}");
            assert!(!lowers(1, &stored(OTHER, 50), back.next(next)), "another sequence");
        }
        // Below the claims, but above the next id of a restored store.
        assert!(lowers(1, &stored(ORDERS, 20), back.next(30)));
        assert!(!lowers(1, &stored(ORDERS, 20), Change::new().next(30)));
    }

    #[test]
    fn lower_max_lowers_claims_only_if_it_lowers_next() {
        let back = Change::new().backwards(true);
        assert!(lowers(1, &stored(ORDERS, 50), back.max(30)));
        assert!(!lowers(1, &stored(ORDERS, 50), back.max(49)), "the next id stays 50");
        assert!(!lowers(1, &stored(ORDERS, 20), back.max(500)), "a restored store is raised, not reset");
    }

    #[test]
    fn set_of_an_earlier_epoch_is_a_reset() {
        let change = Change::new().backwards(true).next(60);
        for (epoch, lower) in [(0, false), (1, false), (2, true)] {
            assert_eq!(lowers(epoch, &stored(ORDERS, 20), change), lower, "{epoch}");
        }
    }

    #[test]
    fn pending_change_names_the_command_to_repeat() {
        for (announced, advice) in [
            (
                Announced::Resetting { start: 1 },
                "a reset was announced, not confirmed; if ids from ID on are unused, repeat `idmill set NAME \
                 --next ID --backwards --yes`",
            ),
            (Announced::Raising, "a raise was announced, not confirmed; repeat `idmill set NAME --next ID`"),
            (
                Announced::Removing,
                "a removal was announced but not confirmed; repeat `idmill remove NAME --yes`",
            ),
        ] {
            assert_eq!(announced.repeated(), advice);
        }
    }

    #[test]
    fn half_done_change_is_not_transient() {
        let error = unconfirmed(Error::new(ErrorKind::Unavailable, "no answer"));
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        assert_eq!(
            idmill_kit::chain(&error),
            "the store has the change, but the witness may not; repeat the change when the witness is \
             writable: no answer"
        );
        let error = overtaken("nothing was changed");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(
            error.to_string(),
            "another process reset or recreated the sequence, or used a later epoch; nothing was changed; \
             repeat the reset"
        );
    }
}
