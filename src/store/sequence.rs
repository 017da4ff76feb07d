//! Stored sequences and changes to them.

use super::{Bounds, GiveBack, Grant, Identity, exhausted};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::range::IdRange;

/// A stored sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SequenceInfo {
    /// Its name.
    pub name: SequenceName,
    /// The next id that a reserve would grant; `None` once max has been reserved.
    pub next: Option<u64>,
    /// Its first and last id.
    pub bounds: Bounds,
    /// Its incarnation and epoch.
    pub identity: Identity,
}

impl SequenceInfo {
    /// Returns a new sequence with a fresh identity.
    pub fn new(name: SequenceName, bounds: Bounds) -> Self {
        Self { name, next: Some(bounds.start()), bounds, identity: Identity::fresh() }
    }

    /// Returns a sequence read from a store.
    pub const fn stored(name: SequenceName, next: Option<u64>, bounds: Bounds, identity: Identity) -> Self {
        Self { name, next, bounds, identity }
    }

    /// Returns how many ids can still be reserved.
    pub fn remaining(&self) -> u128 {
        self.next.map_or(0, |next| u128::from(self.bounds.max()) - u128::from(next) + 1)
    }

    /// Applies a reserve to the sequence: returns the granted range and advances `next`. Used by stores that
    /// compute the new row in the client.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`] if no id is left at or below `ceiling`.
    pub fn grant(&mut self, count: u64, ceiling: u64) -> Result<Grant> {
        let last_allowed = self.bounds.max().min(ceiling);
        let Some(start) = self.next.filter(|next| *next <= last_allowed) else {
            return Err(exhausted(&self.name, last_allowed));
        };
        // The sum saturates, and is then limited to `last_allowed`, which is at least `start`.
        let last = start.saturating_add(count.max(1) - 1).min(last_allowed);
        self.next = if last >= self.bounds.max() { None } else { last.checked_add(1) };
        // The length cannot overflow: it is at most `count`, or 1 if `count` is 0.
        let range = IdRange::new(start, (last - start).saturating_add(1)).expect("last is in bounds");
        Ok(Grant::new(range, self.identity, self.bounds))
    }

    /// Applies a give-back to the sequence: `next` moves back to the start of the rest if nothing was
    /// reserved after it and the identity is still the same. Otherwise nothing changes, and it returns
    /// `false`. Used by stores that compute the new row in the client.
    pub fn take_back(&mut self, back: &GiveBack) -> bool {
        let within = back.rest.start() >= self.bounds.start() && !back.rest.is_empty();
        if !within || back.identity != self.identity || back.rest.end() != self.reached() {
            return false;
        }
        self.next = Some(back.rest.start());
        true
    }

    /// Returns the first id not reserved so far. The id can be 2^64, so it is a `u128`.
    pub fn reached(&self) -> u128 {
        self.next.map_or(u128::from(self.bounds.max()) + 1, u128::from)
    }

    /// Checks that the sequence has this identity; `None` accepts any. Used by stores, before they change or
    /// remove the sequence.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if it has another identity.
    pub fn check_identity(&self, expected: Option<Identity>) -> Result<()> {
        if expected.is_some_and(|expected| expected != self.identity) {
            let message = "it was reset, revoked or created again since it was read; read it again";
            return Err(refused(message).of(&self.name));
        }
        Ok(())
    }

    /// Applies a [`Change`] to the sequence.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for values out of bounds; [`ErrorKind::Conflict`] for a step backwards
    /// without [`Change::backwards`], or for an unexpected identity.
    pub fn apply(&mut self, change: &Change) -> Result<()> {
        apply(self, change).map_err(|error| error.of(&self.name).during(Operation::Set))
    }
}

/// A change to a stored sequence. `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Change {
    /// The next id to reserve.
    pub next: Option<u64>,
    /// The last id, inclusive.
    pub max: Option<u64>,
    /// Allow `next` to move backwards, or `max` to move below ids that are already reserved. Ids that were
    /// handed out before can then be handed out again. Such a step raises the epoch, so that running
    /// processes drop their ids at the next refill.
    pub backwards: bool,
    /// Raise the epoch even without a step backwards, so that running processes drop their ids at the next
    /// refill.
    #[cfg_attr(feature = "serde", serde(default))]
    pub revoke: bool,
    /// Leave the store's history as it is. After a failover, a store may reject reserves until a person sets
    /// `next` (see `history` of `idmill-kit`). A program that raises `next`, for example after an import, may
    /// choose a value that is too low. Such a change must not make the store accept reserves again.
    // Only serialized if set: servers of earlier versions reject unknown fields.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub keep_history: bool,
    /// Reject the change unless the sequence still has this identity.
    pub expect: Option<Identity>,
}

impl Change {
    /// Returns an empty change.
    pub const fn new() -> Self {
        Self { next: None, max: None, backwards: false, revoke: false, keep_history: false, expect: None }
    }

    /// Sets [`next`](Self::next); `None` leaves it unchanged.
    #[must_use]
    pub fn next(self, next: impl Into<Option<u64>>) -> Self {
        Self { next: next.into(), ..self }
    }

    /// Sets [`max`](Self::max); `None` leaves it unchanged.
    #[must_use]
    pub fn max(self, max: impl Into<Option<u64>>) -> Self {
        Self { max: max.into(), ..self }
    }

    /// Sets [`backwards`](Self::backwards).
    #[must_use]
    pub fn backwards(self, backwards: bool) -> Self {
        Self { backwards, ..self }
    }

    /// Sets [`revoke`](Self::revoke).
    #[must_use]
    pub fn revoke(self, revoke: bool) -> Self {
        Self { revoke, ..self }
    }

    /// Sets [`expect`](Self::expect).
    #[must_use]
    pub fn expect(self, identity: impl Into<Option<Identity>>) -> Self {
        Self { expect: identity.into(), ..self }
    }
}

fn apply(info: &mut SequenceInfo, change: &Change) -> Result<()> {
    info.check_identity(change.expect)?;
    let max = change.max.unwrap_or(info.bounds.max());
    if max < info.bounds.start() {
        let start = info.bounds.start();
        return Err(Error::invalid(format!("max {max} is below the sequence's start {start}")));
    }
    let reached = info.reached();
    let next = change.next.map_or(reached, u128::from);
    if next < u128::from(info.bounds.start()) || next > u128::from(max) + 1 {
        let start = info.bounds.start();
        if change.next.is_some() {
            return Err(Error::invalid(format!(
                "next {next} is outside the sequence's bounds {start}..={max}"
            )));
        }
        if !change.backwards {
            return Err(refused(
                "ids above the new max are already reserved; if this is intended, retry with `backwards`",
            ));
        }
    }
    let back = next < reached || u128::from(max) + 1 < reached;
    if back && !change.backwards {
        return Err(refused(
            "next would go backwards, so ids could be repeated; if this is intended, retry with `backwards`",
        ));
    }
    info.bounds = Bounds::new(info.bounds.start(), max)?;
    info.next = u64::try_from(next).ok().filter(|next| *next <= max);
    info.identity.epoch += u64::from(back || change.revoke);
    Ok(())
}

fn refused(message: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, message)
}
