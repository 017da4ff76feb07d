//! Reserves, grants and give-backs.

use super::{Bounds, Identity, not_found};
use crate::error::Result;
use crate::name::SequenceName;
use crate::range::IdRange;

/// A request for the next range of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Reserve {
    /// The sequence's name.
    pub name: SequenceName,
    /// Number of ids, at least 1. The grant has fewer only at the end of the bounds or of a window, or at the
    /// ceiling.
    pub count: u64,
    /// The largest id that the caller's type can hold. Nothing above it is granted, even if the sequence's
    /// max is larger.
    pub ceiling: u64,
    /// The bounds of the sequence to create if it does not exist. `None` if it must exist: a process that was
    /// granted ids never creates the sequence again, since a store that has lost it would grant the same ids.
    pub create: Option<Bounds>,
}

impl Reserve {
    /// Creates a request for `count` ids, at least 1, without a ceiling, of a sequence that must exist.
    pub fn new(name: SequenceName, count: u64) -> Self {
        Self { name, count, ceiling: u64::MAX, create: None }
    }

    /// Sets the number of ids.
    #[must_use]
    pub fn count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// Sets the [`ceiling`](Self::ceiling).
    #[must_use]
    pub fn ceiling(self, ceiling: u64) -> Self {
        Self { ceiling, ..self }
    }

    /// Sets the bounds to [create](Self::create) the sequence with; `None` if it must exist.
    #[must_use]
    pub fn create(self, bounds: impl Into<Option<Bounds>>) -> Self {
        Self { create: bounds.into(), ..self }
    }

    /// Returns the bounds to create the missing sequence with.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the sequence must exist.
    pub fn creation(&self) -> Result<Bounds> {
        self.create.ok_or_else(|| not_found(&self.name))
    }
}

/// A range that a store has reserved exclusively for this caller.
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
    /// Further ids that were reserved for this request and that will never be handed out.
    // Only serialized if set: clients of earlier versions reject unknown fields.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub gap: u64,
}

impl Grant {
    /// Creates a grant.
    pub const fn new(range: IdRange, identity: Identity, bounds: Bounds) -> Self {
        Self { range, identity, bounds, gap: 0 }
    }

    /// Adds ids that were reserved for the same request and that will never be handed out.
    #[must_use]
    pub const fn leaving_gap(self, ids: u64) -> Self {
        Self { gap: self.gap.saturating_add(ids), ..self }
    }

    /// Returns the grant for a part of its range.
    #[must_use]
    pub const fn range(self, range: IdRange) -> Self {
        Self { range, ..self }
    }
}

#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde requires")]
fn is_zero(ids: &u64) -> bool {
    *ids == 0
}

/// The unused rest of a range, to be given back by its owner: the last ids reserved from the sequence, as far
/// as the owner can see. None of them was handed out. The owner drops the ids and sends the give-back once,
/// even if it fails.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GiveBack {
    /// The sequence's name.
    pub name: SequenceName,
    /// The identity under which the ids were reserved.
    pub identity: Identity,
    /// The ids; never empty.
    pub rest: IdRange,
}

impl GiveBack {
    /// Creates a give-back of the rest of a range that was reserved under this identity.
    pub const fn new(name: SequenceName, identity: Identity, rest: IdRange) -> Self {
        Self { name, identity, rest }
    }
}
