//! A sequence as it is stored, and what changes it.

use super::{Bounds, GiveBack, Grant, Identity, exhausted};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::range::IdRange;

/// One sequence as it is stored.
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
    /// A sequence that is being created now, with an identity of its own.
    pub fn new(name: SequenceName, bounds: Bounds) -> Self {
        Self { name, next: Some(bounds.start()), bounds, identity: Identity::fresh() }
    }

    /// A sequence as a store has it.
    pub const fn stored(name: SequenceName, next: Option<u64>, bounds: Bounds, identity: Identity) -> Self {
        Self { name, next, bounds, identity }
    }

    /// How many ids can still be reserved.
    pub fn remaining(&self) -> u128 {
        self.next.map_or(0, |next| u128::from(self.bounds.max()) - u128::from(next) + 1)
    }

    /// What a reserve does to a sequence: the range it grants, moving `next` on. Stores that compute in the
    /// client share this arithmetic.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`] if no id is left at or below `ceiling`.
    pub fn grant(&mut self, count: u64, ceiling: u64) -> Result<Grant> {
        let last_allowed = self.bounds.max().min(ceiling);
        let Some(start) = self.next.filter(|next| *next <= last_allowed) else {
            return Err(exhausted(&self.name, last_allowed));
        };
        // `last_allowed - start` cannot overflow, and neither can adding a length that
        // is no larger than it plus one.
        let last = start.saturating_add(count.max(1) - 1).min(last_allowed);
        self.next = if last >= self.bounds.max() { None } else { last.checked_add(1) };
        // Only the whole of u64 has a length that does not fit; the rest of it is
        // granted by the next reserve.
        let range = IdRange::new(start, (last - start).saturating_add(1)).expect("last is in bounds");
        Ok(Grant { range, identity: self.identity, bounds: self.bounds })
    }

    /// What a give-back does to a sequence: `next` moves back to the start of the rest if nothing was
    /// reserved after it and the sequence is still the same. Otherwise nothing changes, and it returns
    /// `false`. Stores that compute in the client share this arithmetic.
    pub fn take_back(&mut self, back: &GiveBack) -> bool {
        let within = back.rest.start() >= self.bounds.start() && !back.rest.is_empty();
        if !within || back.identity != self.identity || back.rest.end() != self.reached() {
            return false;
        }
        self.next = Some(back.rest.start());
        true
    }

    /// The first id not reserved so far: 2^64 is possible, hence the width.
    pub fn reached(&self) -> u128 {
        self.next.map_or(u128::from(self.bounds.max()) + 1, u128::from)
    }

    /// What a [`Change`] does to a sequence.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for values that cannot be; [`ErrorKind::Conflict`] for a step backwards
    /// that was not asked for as such, or an identity that is not the expected one.
    pub fn apply(&mut self, change: &Change) -> Result<()> {
        apply(self, change).map_err(|error| error.of(&self.name).during(Operation::Set))
    }
}

/// A change to a stored sequence; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Change {
    /// The next id to reserve.
    pub next: Option<u64>,
    /// The last id, inclusive.
    pub max: Option<u64>,
    /// Allow `next` to move backwards, or `max` below what was reserved already. Ids can then be
    /// handed out twice, unless nobody kept the first ones. The epoch is raised, so that running
    /// processes drop what they hold.
    pub backwards: bool,
    /// Raise the epoch though nothing goes backwards, so that running processes drop what they hold.
    #[cfg_attr(feature = "serde", serde(default))]
    pub revoke: bool,
    /// Leave the store's history as it is. A `next` that a person sets ends the refusal after a failover (see
    /// `history` of `idmill-kit`). A program that raises what is behind, such as an import, knows
    /// only its own numbers and must not decide that.
    // Written only where it is set: servers of earlier versions refuse a field that they do not know.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub keep_history: bool,
    /// Refuse the change unless the sequence still is this one.
    pub expect: Option<Identity>,
}

impl Change {
    /// No change.
    pub const fn new() -> Self {
        Self { next: None, max: None, backwards: false, revoke: false, keep_history: false, expect: None }
    }

    /// Sets [`next`](Self::next); `None` leaves it.
    #[must_use]
    pub fn next(self, next: impl Into<Option<u64>>) -> Self {
        Self { next: next.into(), ..self }
    }

    /// Sets [`max`](Self::max); `None` leaves it.
    #[must_use]
    pub fn max(self, max: impl Into<Option<u64>>) -> Self {
        Self { max: max.into(), ..self }
    }

    /// Allows or refuses to go [`backwards`](Self::backwards).
    #[must_use]
    pub fn backwards(self, backwards: bool) -> Self {
        Self { backwards, ..self }
    }

    /// Has running processes [drop](Self::revoke) what they hold, or not.
    #[must_use]
    pub fn revoke(self, revoke: bool) -> Self {
        Self { revoke, ..self }
    }

    /// Refuses the change unless the sequence [still is](Self::expect) this one.
    #[must_use]
    pub fn expect(self, identity: impl Into<Option<Identity>>) -> Self {
        Self { expect: identity.into(), ..self }
    }
}

fn apply(info: &mut SequenceInfo, change: &Change) -> Result<()> {
    if change.expect.is_some_and(|expected| expected != info.identity) {
        return Err(refused("it is not the sequence it was: it was reset or created again meanwhile"));
    }
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
                "ids above the new max are reserved already; repeat with `backwards` if that is meant",
            ));
        }
    }
    let back = next < reached || u128::from(max) + 1 < reached;
    if back && !change.backwards {
        return Err(refused(
            "that is backwards: ids could be handed out twice; repeat with `backwards` if that is meant",
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
