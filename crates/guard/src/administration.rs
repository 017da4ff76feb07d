//! Resets and removals through the guard: announced at the witness, applied to the store, confirmed at the
//! witness.

use super::witness::{is_certain, of_the_witness};
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
    let amended = amend(witness, name, None, Ledger::forgotten).await;
    Ok(amended.map_err(|error| error.of(name))?.is_some())
}

impl Guarded {
    /// Implements [`Store::set`](idmill::store::Store::set). Only a change with
    /// [`backwards`](Change::backwards) lowers the claims.
    pub(super) async fn changed(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let seen = match self.witness.read(name).await {
            Ok(seen) => seen,
            Err(error) if change.backwards => return Err(of_the_witness(error)),
            // The change raises or revokes the sequence, which is possible without the witness.
            Err(_) => None,
        };
        let Some(seen) = seen else { return self.store.set(name, change).await };
        let stored = self.store.inspect(name).await?;
        if let Some((stored, start)) = stored.and_then(|stored| lowers(&seen, stored, &change)) {
            // The epoch must change, because processes still have ranges of the old one in memory.
            let change = change.revoke(true).expect(stored.identity);
            return self.reset(name, stored.identity, start, change).await;
        }
        let after = self.store.set(name, change).await?;
        if seen.identity.incarnation == after.identity.incarnation {
            // The sequence exists, so a pending announcement is superseded. If this write fails, the
            // announcement stays pending.
            let _ = self.amend(name, Ledger::taken_back).await;
        }
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
    /// claims.
    pub(super) async fn removed(&self, name: &SequenceName) -> Result<bool> {
        let seen = self.witness.read(name).await.map_err(of_the_witness)?;
        let stored = if seen.is_none() { self.store.inspect(name).await? } else { None };
        // If there is no ledger, open one: a range may have been granted but not yet claimed.
        let opened = stored.map(|stored| Ledger::opened(&stored));
        let Some(known) = seen.or_else(|| opened.clone()).map(|ledger| ledger.identity.incarnation) else {
            return self.store.remove(name).await;
        };
        amend(&*self.witness, name, opened, Ledger::removing).await?;
        match self.store.remove(name).await {
            Ok(removed) => {
                let confirmed = self.amend(name, |ledger| ledger.removed(known)).await;
                confirmed.map_err(unconfirmed)?;
                Ok(removed)
            }
            Err(error) => Err(self.not_done(name, error).await),
        }
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
        change: impl Fn(&Ledger) -> Option<Ledger> + Send,
    ) -> Result<Option<Ledger>> {
        amend(&*self.witness, name, None, change).await
    }
}

/// Writes and returns the ledger that `change` returns, or `None` for no change. `opened` is used if there is
/// no ledger.
async fn amend(
    witness: &dyn Witness,
    name: &SequenceName,
    opened: Option<Ledger>,
    change: impl Fn(&Ledger) -> Option<Ledger> + Send,
) -> Result<Option<Ledger>> {
    let mut contest = Contention::new().begin();
    loop {
        let seen = witness.read(name).await.map_err(of_the_witness)?;
        let Some(wanted) = seen.as_ref().or(opened.as_ref()).and_then(&change) else { return Ok(None) };
        if witness.swap(name, seen.as_ref(), &wanted).await.map_err(of_the_witness)? {
            return Ok(Some(wanted));
        }
        contest.lost(None).await?;
    }
}

/// Returns the stored sequence and the next id after the change, if the change lowers the claims, or if the
/// store still has an epoch from before a reset.
fn lowers(seen: &Ledger, stored: SequenceInfo, change: &Change) -> Option<(SequenceInfo, u128)> {
    let is_it = stored.identity.incarnation == seen.identity.incarnation
        && change.expect.is_none_or(|expected| expected == stored.identity);
    if !change.backwards || !is_it {
        return None;
    }
    let mut after = stored.clone();
    // The store rejects a change that cannot be applied.
    after.apply(change).ok()?;
    let start = after.reached();
    let is_meant = change.next.is_some() || start < stored.reached();
    let is_lower = start < seen.top() || stored.identity.epoch < seen.identity.epoch;
    (is_meant && is_lower).then_some((stored, start))
}

fn unconfirmed(error: Error) -> Error {
    let message =
        "the store has the change, but the witness may not; repeat the change when the witness is writable";
    Error::new(error.kind(), message).because(error)
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
            _ => "a removal was announced but not confirmed; repeat `idmill remove NAME --yes`",
        }
    }
}
