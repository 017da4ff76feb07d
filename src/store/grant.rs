//! What a store is asked to reserve, what it grants, and what is given back to it.

use super::{Bounds, Identity, not_found};
use crate::error::Result;
use crate::name::SequenceName;
use crate::range::IdRange;

/// A request for the next range of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Reserve {
    /// Which sequence.
    pub name: SequenceName,
    /// How many ids; at least 1. The grant has fewer only where the bounds end.
    pub count: u64,
    /// The largest id that the caller's type can hold: nothing above it is granted,
    /// whatever the sequence's own max.
    pub ceiling: u64,
    /// The bounds with which to create the sequence if it does not exist. `None` if it has to
    /// exist: a process that was granted ids of it never creates it anew, since a store that has
    /// lost it would grant them again.
    pub create: Option<Bounds>,
}

impl Reserve {
    /// A request for `count` ids, at least 1, of a sequence that has to exist, whatever the ids.
    pub fn new(name: SequenceName, count: u64) -> Self {
        Self { name, count, ceiling: u64::MAX, create: None }
    }

    /// For so many ids.
    #[must_use]
    pub fn count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// With another [`ceiling`](Self::ceiling).
    #[must_use]
    pub fn ceiling(self, ceiling: u64) -> Self {
        Self { ceiling, ..self }
    }

    /// With the bounds to [create](Self::create) the sequence with; `None` if it has to exist.
    #[must_use]
    pub fn create(self, bounds: impl Into<Option<Bounds>>) -> Self {
        Self { create: bounds.into(), ..self }
    }

    /// The bounds with which to create the sequence, which does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if it has to exist.
    pub fn creation(&self) -> Result<Bounds> {
        self.create.ok_or_else(|| not_found(&self.name))
    }
}

/// A range that a store has reserved for this caller alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Grant {
    /// The ids; never empty.
    pub range: IdRange,
    /// The identity under which they were reserved.
    pub identity: Identity,
    /// The bounds of the stored sequence.
    pub bounds: Bounds,
}

impl Grant {
    /// These ids of a stored sequence with this identity and these bounds.
    pub const fn new(range: IdRange, identity: Identity, bounds: Bounds) -> Self {
        Self { range, identity, bounds }
    }

    /// The same, of other ids: a part of them.
    #[must_use]
    pub const fn range(self, range: IdRange) -> Self {
        Self { range, ..self }
    }
}

/// The unused rest of a range, which its owner gives back: the last ids that were reserved of the
/// sequence, as far as the owner knows. No id of it was handed out. The owner forgets it, and gives it
/// back once, whatever the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GiveBack {
    /// Which sequence.
    pub name: SequenceName,
    /// The identity under which the ids were reserved.
    pub identity: Identity,
    /// The ids; never empty.
    pub rest: IdRange,
}

impl GiveBack {
    /// This rest of a range that was reserved under this identity.
    pub const fn new(name: SequenceName, identity: Identity, rest: IdRange) -> Self {
        Self { name, identity, rest }
    }
}
